import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironworks.cli.output import clean, closest, columns, dollars, duration, print_json, short


@pytest.mark.spec("CLI-11")
@given(st.text())
def test_no_control_character_survives(text: str) -> None:
    shown = clean(text)
    assert not [character for character in shown if ord(character) < 32 or 127 <= ord(character) < 160]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")


@given(st.text())
def test_lines_and_tabs_survive_where_they_are_wanted_and_nothing_else_does(text: str) -> None:
    shown = clean(text, lines=True)
    assert shown.count("\n") == text.count("\n")
    assert not [character for character in shown if ord(character) < 32 and character not in "\n\t"]


@pytest.mark.spec("CLI-11")
@pytest.mark.parametrize(
    "escape",
    ["\x1b[2J", "\x1b]8;;http://evil\x07", "\x9b31m", "\x90q", "a\rb", "\x08", "\u202e", "\x7f"],
)
def test_what_a_terminal_would_obey_is_made_visible(escape: str) -> None:
    assert escape not in clean(f"x{escape}y")
    assert "\\" in clean(f"x{escape}y")


def test_plain_text_of_any_language_stays_as_it_is() -> None:
    text = "naïve 日本語 🙂👩‍👩‍👧 e\u0301"
    assert clean(text) == text


def test_columns_are_aligned_and_cleaned() -> None:
    assert columns([("A", "B"), ("long", "\x1b")]) == "A     B\nlong  \\x1b"


@pytest.mark.parametrize(("seconds", "shown"), [(-5, "0s"), (59.9, "59s"), (192, "3m12s"), (7500, "2h05m")])
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(("amount", "shown"), [(0, "$0.00"), (0.0012, "$0.0012"), (1.239, "$1.24")])
def test_dollars(amount: float, shown: str) -> None:
    assert dollars(amount) == shown


def test_short_is_one_line() -> None:
    assert short("a\n b  c", 10) == "a b c"
    assert short("abcdef", 4) == "abc…"


def test_closest() -> None:
    assert closest("statsu", ["status", "stop"]) == "did you mean status?"
    assert closest("zzz", ["status"]) == ""


def test_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"x": "\x1b\u202e\udcff"})
    assert capsys.readouterr().out.isascii()
