"""Projects whose tests need something beside them."""

from pathlib import Path

import pytest
from tests.e2e.workshop import Workshop, add, states

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SERVER = (
    "import socket; s = socket.create_server(('127.0.0.1', 7000))\nwhile True: s.accept()[0].sendall(b'till')"
)
ASK = "import socket; assert socket.create_connection(('127.0.0.1', 7000), 5).recv(9) == b'till'"
SETTINGS = f"""
[sandbox.services.till]
command = '''python3 -c "{SERVER}"'''
ready = 7000
"""
NEEDED = f'''python3 -c "{ASK}"'''


@pytest.mark.spec("SB-74")
def test_work_verification_and_review_have_the_service(tmp_path: Path) -> None:
    shop = Workshop(
        tmp_path, {"One": {"work": [[NEEDED, *add("one")]], "before_review": [NEEDED]}}, more=SETTINGS
    )
    test = f"import socket\n\n\ndef test_till():\n    {ASK.partition('; ')[2]}\n"
    (shop.repository / "tests" / "test_service.py").write_text(test, "utf-8")
    shop.git("add", "-A")
    shop.git("-c", "user.name=S", "-c", "user.email=s@localhost", "commit", "-qm", "A test with a service")

    code, report = shop.run()

    assert (code, states(report)) == (0, {"One": "landed"})


@pytest.mark.spec("SB-75")
def test_a_service_that_fails_on_the_base_stops_the_run_before_any_agent(tmp_path: Path) -> None:
    shop = Workshop(
        tmp_path, {"One": {"work": [add("one")]}}, more=SETTINGS.replace("python3 -c", "false -c")
    )
    code, out, _ = shop.call(shop.run_words())
    assert code == 2
    assert "service till ended (exit code 1)" in out and "[sandbox.services]" in out
