"""One preparation for many runs, and what it has fetched for agents without a network."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.e2e.test_misfortune import commit
from tests.e2e.workshop import Workshop, add, states

from ironworks.sandbox.local import LocalBackend

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

COUNT = "echo x >> ~/count && echo secret > ~/.netrc && cp requirements.txt installed"
INSTALL = "python3 -m venv .venv && .venv/bin/pip install -q -r requirements.txt"
AGAIN = (
    "python3 -m venv /tmp/v && /tmp/v/bin/pip install -q -r requirements.txt"
    " && /tmp/v/bin/python -c 'import six' && rm -rf node_modules"
)


def prepared(shop: Workshop, *prepare: str, network: str = "") -> None:
    settings = shop.git("show", "HEAD:ironworks.toml").partition("prepare =")[0]
    lines = f"prepare = {list(prepare)!r}\n"
    first = shop.git("rev-list", "--max-parents=0", "HEAD").split()[0]
    settings = shop.git("show", f"{first}:ironworks.toml").replace("[project]", f"[project]\n{lines}", 1)
    commit(shop, "ironworks.toml", settings + network)


def bases(shop: Workshop) -> list[tuple[str, str | None]]:
    backend = LocalBackend(shop.folder / "state" / "sandboxes")
    return [(shot.name, shot.below) for shot in backend._disks.snapshots()]


def shown(shop: Workshop, command: str) -> str:
    words = ["sandbox", "exec", "--state", str(shop.folder / "state"), "look", "sh", "-c", command]
    (base, _) = bases(shop)[-1]
    state = ["--state", str(shop.folder / "state")]
    assert shop.call(["sandbox", "create", "look", "--from", base, *state])[0] == 0
    try:
        return shop.call(words)[1]
    finally:
        shop.call(["sandbox", "rm", "look", *state])


@pytest.mark.spec("SB-80")
def test_a_base_is_prepared_once_for_all_that_leaves_its_content_as_it_is(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, {"One": {"work": [add("one")]}})
    (shop.repository / "requirements.txt").write_text("six\n")
    prepared(shop, COUNT)
    assert states(shop.run()[1]) == {"One": "landed"}
    assert shown(shop, "cat ~/count; ls ~/.netrc; git status --porcelain") == "x\n"

    commit(shop, "NOTES", "the base moves on")
    shop.backlog.write_text("## Two\n\nPlease.\n", "utf-8")
    shop.plan({"Two": {"work": [add("two")]}})
    code, out, _ = shop.call(shop.run_words())
    assert code == 0, out
    (first, below), (second, rests_on) = bases(shop)
    assert (below, rests_on) in {(None, first), (second, None)}
    assert shop.git("show", "ironworks/integration:NOTES") == "the base moves on"

    commit(shop, "requirements.txt", "six>1\n")
    shop.backlog.write_text("## Three\n\nPlease.\n", "utf-8")
    shop.plan({"Three": {"work": [add("three")]}})
    assert shop.call(shop.run_words())[0] == 0
    assert len({name[:21] for name, _ in bases(shop)}) == 2
    events = shop.call(shop.arguments("events", "--json"))[1]
    assert events.count("BaseSnapshotMade") == 3


@pytest.mark.spec("SB-81")
def test_what_was_fetched_once_is_installed_again_without_a_network(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    plan = {"One": {"work": [[AGAIN, *add("one")]]}}
    shop = Workshop(tmp_path, plan)
    (shop.repository / "requirements.txt").write_text("six==1.16.0\n")
    (shop.repository / ".gitignore").write_text(".venv\nnode_modules\n__pycache__\n")
    commands = [INSTALL]
    if npm:
        (shop.repository / "package.json").write_text('{"dependencies": {"is-number": "7.0.0"}}\n')
        lock = ["npm", "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(lock, cwd=shop.repository, check=True, timeout=120, capture_output=True)
        commands.append("npm ci")
        shop.plan({"One": {"work": [[AGAIN, "npm ci; ls node_modules/is-number", *add("one")]]}})
    prepared(shop, *commands, network="")
    shop.config.write_text(shop.config.read_text("utf-8") + '[network]\nprepare = ["pip", "npm"]\n', "utf-8")

    code, report = shop.run()

    assert (code, states(report)) == (0, {"One": "landed"}), report
