"""What TLS clients inside a sandbox trust."""

from pathlib import Path

import pytest

from ironworks.sandbox.local.view import AUTHORITIES, TRUSTING, View


@pytest.mark.spec("SB-23")
def test_every_client_is_told_the_bundle_of_the_host(tmp_path: Path) -> None:
    environment = View(tmp_path / "etc").environment()
    present = [path for path in AUTHORITIES if Path(path).is_file()]
    if not present:
        pytest.skip("this host has no bundle of certificate authorities")
    assert {environment[name] for name in TRUSTING} == {present[0]}
