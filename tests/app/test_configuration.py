from collections.abc import Callable
from pathlib import Path

import pytest
from tests.app.ground import commit, git, repository, write

from ironworks.app.base import base_reader
from ironworks.app.configuration import Loaded, Overrides, load
from ironworks.app.place import find_place
from ironworks.app.trust import TrustStore
from ironworks.core.errors import ConfigError, MissingError, TrustError
from ironworks.core.settings import Settings

Load = Callable[..., Loaded]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "r")


def loaded(root: Path, file: Path | None = None, **overrides: object) -> Loaded:
    return load(find_place(root), base_reader(root), file=file, overrides=Overrides(**overrides))  # type: ignore[arg-type]


def operator(root: Path, text: str, **overrides: object) -> Loaded:
    """Settings with `text` as the file named on the command line."""
    file = root.parent / "operator.toml"
    file.write_text(text, "utf-8")
    return loaded(root, file, **overrides)


def trusted(root: Path, text: str) -> Loaded:
    """Settings with `text` as the repository's own, committed and trusted file."""
    commit(root, {"ironworks.toml": text})
    TrustStore().record(root, text.encode())
    return loaded(root)


def test_without_any_file_the_defaults_count_for_the_branch_checked_out(root: Path) -> None:
    found = loaded(root)
    assert found.settings.project.base == "main"
    assert found.settings.model_copy(update={"project": Settings().project}) == Settings()
    assert found.warnings == ()


@pytest.mark.spec("CF-4")
@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ('test = "t {junit}"', [("tests", "t {junit}")]),
        ('[project.test]\nname = "a"\ncommand = "t"', [("a", "t")]),
        ('[[project.test]]\ncommand = "t"', [("tests", "t")]),
        (
            '[[project.test]]\ncommand = "t"\n[[project.test]]\ncommand = "u"',
            [("tests-1", "t"), ("tests-2", "u")],
        ),
        ('test = ""', []),
    ],
)
def test_a_test_is_a_command_or_tables(root: Path, test: str, expected: list[tuple[str, str]]) -> None:
    text = f"[project]\n{test}\n" if test.startswith("test") else test
    suites = operator(root, text).settings.project.test
    assert [(suite.name, suite.command) for suite in suites] == expected


@pytest.mark.spec("CF-4")
def test_lists_may_be_written_as_one_string_and_commands_as_a_line(root: Path) -> None:
    text = (
        '[project]\nprepare = "a b"\n[agent]\nuse = "command"\ncommand = "sh \'a b\'"\ncontext = "DOC.md"\n'
    )
    settings = operator(root, text).settings
    assert settings.project.prepare == ("a b",)
    assert settings.agent.command == ("sh", "a b")
    assert settings.agent.context == ("DOC.md",)


@pytest.mark.spec("CF-4")
def test_a_stage_overrides_the_agent_key_by_key(root: Path) -> None:
    text = '[agent]\nuse = "command"\nmodel = "m"\n[agent.review]\nmodel = "n"\n'
    settings = operator(root, text).settings
    assert (settings.agent_for("work").use, settings.agent_for("work").model) == ("command", "m")
    assert (settings.agent_for("review").use, settings.agent_for("review").model) == ("command", "n")
    assert set(settings.stages) == {"review"}


@pytest.mark.spec("CF-5")
@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[projct]\n", "unknown section [projct]", "project"),
        ('[project]\ntst = "x"\n', "unknown key project.tst", "test"),
        ("[limits]\nparalel = 3\n", "unknown key limits.paralel", "parallel"),
        ('[agent.reveiw]\nmodel = "m"\n', "unknown key agent.reveiw", "review"),
        ('[agent.review]\nmodle = "m"\n', "unknown key agent.review.modle", "model"),
        ('[[project.test]]\ncomand = "m"\n', "unknown key project.test.0.comand", "command"),
        ('[providers.a]\nbase_url = "http://x"\nkee = "env:A"\n', "unknown key providers.a.kee", "key"),
        (
            '[providers.a]\nbase_url="http://x"\n[providers.a.prices.m]\ninput=1\noutput=1\nin=1',
            "prices.m.in",
            "input",
        ),
        ("stages = 1\n", "unknown section [stages]", ""),
    ],
)
def test_an_unknown_key_is_an_error_that_suggests_the_right_one(
    root: Path, text: str, message: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        operator(root, text)
    assert message in caught.value.message
    assert "operator.toml" in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.spec("CF-5")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[project\n", ["line 1"]),
        ('a = 1\n\n\nb = "\n', ["line 4"]),
        ('[limits]\nparallel = "many"\n', ["limits.parallel", "integer"]),
        ('[limits]\nparallel = "5"\n', ["limits.parallel", "integer"]),
        ("[limits]\nparallel = 0\n", ["limits.parallel", "greater"]),
        ("[budget]\nissue_usd = nan\n", ["budget.issue_usd"]),
        ("[budget]\nissue_usd = -1\n", ["budget.issue_usd"]),
        ("limits = 3\n", ["limits must be a table"]),
        ("[project]\ntest = 3\n", ["project.test"]),
        ("[project]\nbase = 3\n", ["project.base"]),
        ("[project]\nprepare = [3]\n", ["project.prepare.0", "string"]),
        ('[branch]\ntemplate = "x"\n', ["branch.template", "{issue}"]),
        ('[agent]\ncommand = "a \'b"\n', ["agent.command"]),
        ("[budget]\nissue_usd = 2020-01-01\n", ["operator.toml"]),
        (
            '[[project.test]]\nname="a"\ncommand="x"\n[[project.test]]\nname="a"\ncommand="x"\n',
            ["name of its own"],
        ),
        ("x = " + "[" * 5000, ["operator.toml"]),
    ],
)
def test_a_mistake_is_named_with_its_place(root: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        operator(root, text)
    assert [word for word in words if word not in caught.value.message] == []


@pytest.mark.spec("CF-5")
def test_a_byte_that_is_not_utf_8_is_named_with_its_line(root: Path) -> None:
    file = root.parent / "operator.toml"
    file.write_bytes(b"# x\n# \xff\n")
    with pytest.raises(ConfigError, match="line 2"):
        loaded(root, file)


@pytest.mark.spec("CF-9")
def test_a_secret_written_down_by_mistake_is_not_repeated(root: Path) -> None:
    with pytest.raises(ConfigError, match="never the secret itself") as caught:
        operator(root, '[providers.a]\nbase_url = "http://x"\nkey = "sk-test-leak"\n')
    assert "sk-test-leak" not in caught.value.message + caught.value.hint
    assert caught.value.__suppress_context__


def test_a_byte_order_mark_and_windows_line_ends_are_fine(root: Path) -> None:
    file = root.parent / "operator.toml"
    file.write_bytes(b"\xef\xbb\xbf[limits]\r\nparallel = 2\r\n")
    assert loaded(root, file).settings.limits.parallel == 2


@pytest.mark.spec("CF-6")
@pytest.mark.parametrize(
    "section",
    [
        '[agent]\nuse = "command"',
        '[providers.a]\nbase_url = "http://x"',
        "[budget]\nissue_usd = 99.0",
        "[limits]\nparallel = 99",
        "[sandbox]\ncpus = 9",
        '[network]\nallow = ["evil.example"]',
        '[cleanup]\nwhen = "never"',
        '[branch]\ntemplate = "main{issue}"',
        '[project]\nhidden_tests = "/etc"',
    ],
)
def test_what_only_an_operator_may_grant_needs_trust(root: Path, section: str) -> None:
    write(root, {"ironworks.toml": section + "\n"})
    with pytest.raises(TrustError) as caught:
        loaded(root)
    assert caught.value.exit_code == 2
    assert "ironworks trust" in caught.value.hint


@pytest.mark.spec("CF-6")
def test_trust_ends_with_the_first_changed_byte(root: Path) -> None:
    assert trusted(root, "[limits]\nparallel = 9\n").settings.limits.parallel == 9
    write(root, {"ironworks.toml": "[limits]\nparallel = 9\n\n"})
    with pytest.raises(TrustError):
        loaded(root)


@pytest.mark.spec("CF-6")
def test_a_trusted_file_in_a_bare_repository_is_the_one_at_base(root: Path, tmp_path: Path) -> None:
    text = "[limits]\nparallel = 9\n"
    commit(root, {"ironworks.toml": text})
    git(tmp_path, "clone", "-q", "--bare", str(root), "bare.git")
    with pytest.raises(TrustError):
        loaded(tmp_path / "bare.git")
    TrustStore().record(tmp_path / "bare.git", text.encode())
    assert loaded(tmp_path / "bare.git").settings.limits.parallel == 9


@pytest.mark.spec("CF-7")
def test_how_to_build_and_prove_comes_from_the_base_commit(root: Path) -> None:
    commit(root, {"ironworks.toml": '[project]\ntest = "committed"\n'})
    write(root, {"ironworks.toml": '[project]\ntest = "true"\n'})
    found = loaded(root)
    assert found.settings.project.test[0].command == "committed"
    assert "differs" in found.warnings[0]


@pytest.mark.spec("CF-7")
def test_before_it_is_committed_the_working_copy_counts_and_that_is_said(root: Path) -> None:
    write(root, {"ironworks.toml": '[project]\ntest = "mine"\n'})
    found = loaded(root)
    assert found.settings.project.test[0].command == "mine"
    assert "not committed on main" in found.warnings[0]


def test_a_committed_file_that_did_not_change_gives_no_warning(root: Path) -> None:
    assert trusted(root, '[project]\ntest = "x"\n[limits]\nparallel = 2\n').warnings == ()


@pytest.mark.spec("CF-12")
def test_a_named_file_may_add_a_hidden_suite_to_what_the_repository_says(root: Path) -> None:
    commit(root, {"ironworks.toml": '[project]\ntest = "theirs"\nhidden_tests = "/etc"\n'})
    found = operator(root, '[project]\nhidden_tests = "/grades"\n').settings.project
    assert (found.test[0].command, found.hidden_tests) == ("theirs", "/grades")
    assert operator(root, "[limits]\nparallel = 2\n").settings.project.hidden_tests == ""


@pytest.mark.spec("CF-12")
@pytest.mark.parametrize("place", ["inside", "a link inside", "the agent's", "above the agent's", "/usr/lib"])
def test_a_hidden_suite_in_a_place_that_agents_can_read_is_refused(
    root: Path, tmp_path: Path, place: str
) -> None:
    agents = tmp_path / "above" / "agents"
    for folder in (root / "suite", agents / "suite"):
        folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(root / "suite")
    folder = {
        "inside": root / "suite",
        "a link inside": tmp_path / "link",
        "the agent's": agents / "suite",
        "above the agent's": agents.parent,
    }.get(place, Path(place))
    agent = f'[agent.review]\ndir = "{agents}"\n'
    with pytest.raises(ConfigError, match="not hidden"):
        operator(root, f'[project]\nhidden_tests = "{folder}"\n{agent}')
    assert operator(root, f'[project]\nhidden_tests = "{tmp_path / "apart"}"\n{agent}')


@pytest.mark.spec("CF-7")
def test_the_file_named_on_the_command_line_needs_no_trust_and_leaves_the_repositorys_out(root: Path) -> None:
    write(root, {"ironworks.toml": '[limits]\nparallel = 99\n[project]\ntest = "theirs"\n'})
    found = operator(root, '[limits]\nparallel = 2\n[project]\ntest = "mine"\n')
    assert found.settings.limits.parallel == 2
    assert found.settings.project.test[0].command == "mine"


@pytest.mark.spec("CF-7")
def test_a_named_file_without_project_takes_it_from_base_and_nothing_else(root: Path) -> None:
    commit(
        root,
        {"ironworks.toml": '[limits]\nparallel = 99\n[project]\ntest = "theirs"\nhidden_tests = "/etc"\n'},
    )
    found = operator(root, "[budget]\nissue_usd = 1.0\n")
    assert found.settings.limits.parallel == Settings().limits.parallel
    assert found.settings.project.test[0].command == "theirs"
    assert found.settings.project.hidden_tests == ""


@pytest.mark.spec("CF-7")
def test_the_nearer_file_wins_key_by_key_and_the_command_line_over_all(root: Path, home: Path) -> None:
    write(
        home / ".config" / "ironworks",
        {"config.toml": "[limits]\nparallel = 2\nattempts = 4\n[budget]\nrun_usd = 9.0\n"},
    )
    trusted(root, "[limits]\nparallel = 3\n")
    found = load(
        find_place(root), base_reader(root), overrides=Overrides(agent="command", parallel=7, budget_usd=1.5)
    ).settings
    assert (found.limits.parallel, found.limits.attempts) == (7, 4)
    assert (found.agent.use, found.budget.run_usd) == ("command", 1.5)
    assert loaded(root).settings.limits.parallel == 3


def test_a_user_configuration_has_no_project(root: Path, home: Path) -> None:
    write(home / ".config" / "ironworks", {"config.toml": '[project]\ntest = "x"\n'})
    with pytest.raises(ConfigError, match="project"):
        loaded(root)


def test_paths_are_relative_to_the_file_that_names_them(root: Path, tmp_path: Path) -> None:
    write(tmp_path, {"mine/agent/x": "", "mine/key": "sk-test-1\n"})
    file = tmp_path / "mine" / "o.toml"
    file.write_text('[agent]\ndir = "agent"\n[providers.a]\nbase_url = "http://x"\nkey = "file:key"\n')
    found = loaded(root, file)
    key = found.settings.providers["a"].key
    assert found.settings.agent.dir == str(tmp_path / "mine" / "agent")
    assert key is not None
    assert found.secrets(key) == "sk-test-1"


def test_the_env_file_beside_the_named_file_is_read(root: Path, tmp_path: Path) -> None:
    write(tmp_path, {".env": "A=sk-test-2\n"})
    assert operator(root, "[limits]\n").secrets("env:A") == "sk-test-2"


@pytest.mark.parametrize("folder", ["~", "/", "~/.."])
def test_a_folder_that_holds_the_home_is_never_shown_to_agents(root: Path, folder: str) -> None:
    with pytest.raises(ConfigError, match="home folder"):
        operator(root, f'[agent]\ndir = "{folder}"\n')


def test_a_base_branch_that_does_not_exist_is_missing(root: Path) -> None:
    with pytest.raises(MissingError, match="nope"):
        operator(root, '[project]\nbase = "nope"\n')


def test_a_named_file_that_does_not_exist_is_a_clear_error(root: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        loaded(root, root / "nope.toml")


def test_a_repository_without_a_commit_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q", "-b", "main")
    with pytest.raises(ConfigError):
        loaded(tmp_path / "empty")
