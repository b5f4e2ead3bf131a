import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from tests.cli.conftest import Cli, started

from ironworks import __version__
from ironworks.app.place import Place
from ironworks.cli import VERBS
from ironworks.cli import cli as group

READING = ("status", "show", "logs", "events")


@pytest.mark.spec("CLI-1")
def test_every_verb_of_the_contract_is_there_and_has_a_file_of_its_own() -> None:
    contract = (
        "init doctor trust run attach status show logs events stop pause resume retry answer pr verify "
        "review integrate schema demo report grade sandbox"
    )
    assert set(VERBS) == set(contract.split())
    folder = Path(importlib.import_module("ironworks.cli").__file__ or "").parent
    named = {path.stem for path in folder.iterdir()}
    assert set(VERBS) <= named


def commands() -> list[tuple[str, click.Command]]:
    found = []
    for verb in VERBS:
        command = group.get_command(click.Context(group), verb)
        assert command is not None
        found.append((verb, command))
        found += [(f"{verb} {name}", each) for name, each in getattr(command, "commands", {}).items()]
    return found


@pytest.mark.spec("CLI-2")
@pytest.mark.parametrize(("name", "command"), commands(), ids=[name for name, _ in commands()])
def test_every_verb_has_json_and_help(cli: Cli, name: str, command: click.Command) -> None:
    if not isinstance(command, click.Group):
        assert "--json" in {option for parameter in command.params for option in parameter.opts}
    said = cli(*name.split(), "--help")
    assert (said.code, said.err) == (0, "")
    assert (command.help or "").split("\n")[0].rstrip(".") in " ".join(said.out.split())


def test_the_help_lists_every_verb_and_the_version_is_told(cli: Cli) -> None:
    said = cli("--help")
    assert [verb for verb in VERBS if f"\n  {verb} " not in said.out] == []
    assert __version__ in cli("--version").out


@pytest.mark.spec("CLI-34")
@pytest.mark.parametrize("group", [[], ["pr"]])
def test_a_group_without_a_verb_is_its_help(cli: Cli, group: list[str]) -> None:
    said = cli(*group)
    assert (said.code, said.err, said.out) == (0, "", cli(*group, "--help").out)


@pytest.mark.spec("CLI-3")
def test_an_error_has_a_code_a_message_a_hint_and_an_exit_code(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = cli("status")
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("error[config]: ")
    assert "\n  hint: " in said.err


@pytest.mark.spec("CLI-3")
def test_an_error_is_json_where_json_was_asked_for(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = cli("status", "--json")
    assert said.code == 2
    assert json.loads(said.out)["error"]["code"] == "config"


@pytest.mark.spec("CLI-3")
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["statsu"], ["'statsu'", "did you mean status?"]),
        (["xyzzy"], ["'xyzzy'", "--help"]),
        (["run", "--parallel", "0"], ["--parallel", "ironworks run --help"]),
        (["run", "--parralel", "1"], ["--parralel", "--parallel"]),
        (["show"], ["ISSUE"]),
        (["run", "--budget-usd", "-1"], ["--budget-usd"]),
        (["run", "--backlog", "nope.md"], ["nope.md"]),
        (["run", "--config", "nope.toml"], ["nope.toml"]),
        (["schema", "Verificatoin"], ["did you mean Verification?"]),
    ],
)
def test_a_mistake_on_the_command_line_is_named_and_ends_with_2(
    cli: Cli, place: Place, args: list[str], words: list[str]
) -> None:
    said = cli(*args)
    assert said.code == 2
    assert [word for word in words if word not in said.err] == []


def test_names_that_are_hostile_are_printed_harmlessly(cli: Cli, history: Callable[..., None]) -> None:
    history(started())
    said = cli("show", "\x1b]0;pwned\x07\u202e\udcff")
    assert said.code == 2
    assert "\x1b" not in said.err + said.out
    assert "\\x1b]0;pwned\\x07\\u202e" in said.err


def loads(program: str) -> set[str]:
    """Which heavy packages are imported once `program` has run."""
    heavy = ("dbos", "sqlalchemy", "pydantic", "rich")
    code = f"import sys\n{program}\nprint([name for name in {heavy} if name in sys.modules])"
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(done.stdout.splitlines()[-1].replace("'", '"')))


@pytest.mark.spec("CLI-10")
def test_help_and_reading_verbs_import_nothing_heavy() -> None:
    reading = "\n".join(f"import ironworks.cli.{verb}" for verb in READING)
    assert loads(f"import ironworks.cli\n{reading}") == set()


@pytest.mark.spec("CLI-10")
@pytest.mark.parametrize("args", [["--help"], ["status"], ["show", "one"], ["events"], ["logs", "one"]])
def test_running_them_imports_nothing_heavy_either(place: Place, history: object, args: list[str]) -> None:
    run = f"from ironworks.cli import main\ntry: main({args!r})\nexcept SystemExit: pass"
    assert loads(run) == set()


@pytest.mark.parametrize("verb", list(VERBS))
def test_no_verb_imports_the_durable_engine_to_show_its_help(verb: str) -> None:
    assert "dbos" not in loads(f"import ironworks.cli.{verb}")


def test_a_reader_that_leaves_early_is_no_error(place: Place) -> None:
    done = subprocess.run(
        f"{sys.executable} -m ironworks schema | head -c 10",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
