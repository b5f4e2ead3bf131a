"""Backlogs as people write them, and as nobody should."""

import random
import re
import unicodedata
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ironworks.core.errors import ConfigError
from ironworks.core.models import Issue
from ironworks.forge.local.backlog import MAX_BYTES, parse


def read(text: str) -> list[Issue]:
    return parse("backlog.md", dedent(text).encode())


def titles(text: str) -> list[str]:
    return [issue.title for issue in read(text)]


def refusal(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        read(text)
    return raised.value


@pytest.mark.spec("FG-1")
def test_headings_with_text_below_are_issues() -> None:
    first, second = read("""\
        # Backlog

        What we want this quarter.

        ## Fix the login

        Users cannot log in.

        ### Steps

        1. Open it

        ## Add a dark mode
        Please.
        """)
    assert first.title == "Fix the login"
    assert first.body == "Users cannot log in.\n\n### Steps\n\n1. Open it"
    assert first.source == "backlog.md:5"
    assert (second.title, second.body, second.closed) == ("Add a dark mode", "Please.", False)


@pytest.mark.spec("FG-1")
@pytest.mark.parametrize("bullet", ["-", "*", "+"])
def test_checklists_are_issues_with_their_nested_detail(bullet: str) -> None:
    first, second, third = read(f"""\
        # Things to do

        Intro.

        {bullet} [ ] First thing
          goes on here

          - [ ] a nested box is detail
            - deeper
        {bullet} [x] Second
        {bullet} [X] Third
        """)
    assert first.title == "First thing"
    assert first.body == "goes on here\n\n- [ ] a nested box is detail\n  - deeper"
    assert (first.closed, second.closed, third.closed) == (False, True, True)
    assert second.source == "backlog.md:10"


@pytest.mark.spec("FG-1")
@pytest.mark.parametrize(
    "text", ["1. One\n2. Two\n\n   detail\n", "1) One\n2) Two\n\n   detail\n", "- One\n- Two\n\n  detail\n"]
)
@pytest.mark.parametrize("head", ["", "# Backlog\n\nProse.\n\n", "## To do\n\n", "Some words.\n\n"])
def test_numbered_and_plain_lists_are_issues(text: str, head: str) -> None:
    assert [(issue.title, issue.body) for issue in parse("b", (head + text).encode())] == [
        ("One", ""),
        ("Two", "detail"),
    ]


@pytest.mark.spec("FG-2")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("## A\n- [ ] one\n- [ ] two\n", ["one", "two"]),
        ("## A\nprose\n- [ ] one\n", ["A"]),
        ("## A\n- [ ] one\n\nprose\n", ["A"]),
        ("## A\n- one\n- two\n", ["A"]),
        ("## A\n\n<!-- note -->\n\n- [ ] one\n", ["one"]),
        ("## A\n", ["A"]),
        ("# T\n## A\n### B\nx\n### C\n", ["B", "C"]),
        ("# T\n## A\n### Acceptance criteria\n- [ ] one\n", ["A"]),
        ("# T\n## A\nprose\n### B\n### C\n", ["A"]),
        ("# A\nx\n# B\ny\n", ["A", "B"]),
        ("# A\nprose only\n", ["A"]),
        ("# Backlog\nprose only\n", []),
        ("prose only\n", []),
        ("# T\nRules:\n- be nice\n\n## A\nx\n", ["A"]),
        ("# T\n- [ ] one\n\n## A\nx\n", ["one", "A"]),
        ("## 🐛 Bugs:\nsome prose\n- one\n", ["one"]),
        ("A title\n-------\ntext\n", ["A title"]),
        ("## A\ntext\n---\n## B\n", ["A", "B"]),
        ("> - [ ] quoted\n", []),
        ("text\n\n    - [ ] code\n", []),
        ("```\n- [ ] a\n## b\n```\n", []),
        ("- [ ] a\n  ```\n- [ ] still code?\n  ```\n", ["a", "still code?"]),
    ],
)
def test_what_is_an_issue_and_what_is_not(text: str, expected: list[str]) -> None:
    assert titles(text) == expected


@pytest.mark.spec("FG-2")
def test_code_fences_hide_what_looks_like_entries() -> None:
    [issue] = read("## Parser\n\n````md\n# no\n- [ ] no\n```\n## no\n```\n````\nend\n")
    assert issue.body == "````md\n# no\n- [ ] no\n```\n## no\n```\n````\nend"


@pytest.mark.spec("FG-2")
def test_entries_of_a_section_called_done_are_closed() -> None:
    assert [
        (issue.title, issue.closed)
        for issue in read("## Todo\n- a\n## Done\n- b\n### c\nx\n## ✅ Shipped\n- [ ] d\n")
    ] == [
        ("a", False),
        ("b", True),
        ("c", True),
        ("d", True),
    ]


@pytest.mark.spec("FG-3")
@pytest.mark.parametrize(
    ("heading", "title"),
    [
        ("## **Bold** and `code`", "Bold and code"),
        ("## [Fix it](http://127.0.0.1/1) now ##", "Fix it now"),
        ("## 12. Numbered", "Numbered"),
        ("## [ ] Boxed", "Boxed"),
        ("## 3) [ ] Both", "Both"),
        ("## 2.0 release", "2.0 release"),
        ("## &lt;tag&gt; \\# &#0; \x1b[31mred\x07", "<tag> # \ufffd [31mred"),
        ("## <!-- x -->Title<br>", "Title"),
        ("## -rf --help $(id)", "-rf --help $(id)"),
        ("## 🧨💥", "🧨💥"),
        ("## " + "x" * 5000, "x" * 200),
        ("- [ ]\n  late title", "late title"),
    ],
)
def test_titles_are_plain_text(heading: str, title: str) -> None:
    [issue] = read(heading + "\n")
    assert issue.title == title


@pytest.mark.spec("FG-3")
def test_a_title_that_had_to_be_cut_stands_in_full_in_the_body() -> None:
    [issue] = read("- [ ] " + "word " * 500 + "end\n")
    assert len(issue.title) <= 200
    assert issue.body.endswith("word end")


@pytest.mark.spec("FG-3")
def test_entries_without_any_text_are_left_out() -> None:
    assert titles("##\n\n## A\n") == ["A"]
    assert titles("- [ ]\n-\n- [ ] a\n") == ["a"]


MATTERS = {
    "dashes": "## Title\n---\n{}\n---\nbody\n",
    "dashes after a blank line": "# T\n\n## Title\n\n---\n{}\n---\n\nbody\n",
    "dashes above": "# T\n\n## Other\nx\n\n---\n{}\n---\n## Title\nbody\n",
    "dashes above at the top": "---\n{}\n---\n## Title\nbody\n",
    "fence": "## Title\n```yaml\n{}\n```\nbody\n",
    "lines": "## Title\n{}\n\nbody\n",
}
WISHES = """agent: builtin
model: local/large
runtime: python3.12
budget_usd: 1.5
scope: [src/**, "**/*.toml"]
priority: -2
kind: bug"""


@pytest.mark.spec("FG-4")
@pytest.mark.parametrize("form", MATTERS)
def test_front_matter_is_read_in_every_form(form: str) -> None:
    issue = next(
        issue for issue in parse("b", MATTERS[form].format(WISHES).encode()) if issue.title == "Title"
    )
    assert issue.body == "body"
    assert issue.wishes.model_dump() == {
        "agent": "builtin",
        "model": "local/large",
        "runtime": "python3.12",
        "budget_usd": 1.5,
        "scope": ("src/**", "**/*.toml"),
        "depends_on": (),
        "priority": -2,
        "kind": "bug",
    }


@pytest.mark.spec("FG-4")
def test_a_list_item_has_front_matter_too() -> None:
    first, second, third = read("""\
        - [ ] A
          agent: x
          scope: a, b

          body
        - [ ] B

          ```yaml
          agent: y
          ```
        - [ ] C
          ---
          agent: z
          ---
          body
        """)
    assert (first.wishes.agent, first.wishes.scope, first.body) == ("x", ("a", "b"), "body")
    assert (second.wishes.agent, second.body) == ("y", "")
    assert (third.wishes.agent, third.body) == ("z", "body")


@pytest.mark.spec("FG-4")
@pytest.mark.parametrize(
    "body",
    [
        "Note: this is prose",
        "note: so is this",
        "```yaml\nservices:\n  web: {}\n```",
        "---\n\nprose\n\n---\n\nmore",
    ],
)
def test_text_that_sets_none_of_our_keys_stays_text(body: str) -> None:
    [issue] = read(f"## A\n{body}\n")
    assert issue.body == body
    assert issue.wishes.model_dump(exclude_defaults=True) == {}


@pytest.mark.spec("FG-4")
@pytest.mark.parametrize("form", MATTERS)
def test_an_unknown_key_names_its_line_and_the_right_key(form: str) -> None:
    text = MATTERS[form].format("agent: x\nbuget_usd: 3")
    error = refusal(text)
    line = text.splitlines().index("buget_usd: 3") + 1
    assert error.message == f"backlog.md:{line}: unknown key 'buget_usd'; did you mean 'budget_usd'?"
    assert "priority" in error.hint


@pytest.mark.spec("FG-4")
@pytest.mark.parametrize(
    ("matter", "message"),
    [
        ("priority: high", "backlog.md:2: priority: "),
        ("agent: x\nbudget_usd: 0", "backlog.md:3: budget_usd: "),
        ("budget_usd: .inf", "backlog.md:2: budget_usd: "),
        ("budget_usd: inf", "backlog.md:2: budget_usd: must be a finite number"),
        ("kind: epic", "backlog.md:2: kind: "),
        ("scope: **/x", "backlog.md:2: front matter is not valid YAML"),
        ("agent: {a: b}", "backlog.md:2: agent: "),
        ("agent: " + "[" * 5000, "backlog.md:2: front matter is not valid YAML"),
        ("priority: " + "9" * 5000, "backlog.md:2: priority: "),
        ("depends_on: Nothing", "backlog.md:2: depends_on: 'Nothing' is neither"),
    ],
)
def test_a_wish_that_cannot_be_used_names_its_line(matter: str, message: str) -> None:
    assert refusal(f"## A\n{matter}\n").message.startswith(message)


@pytest.mark.spec("FG-4")
@pytest.mark.parametrize(
    "text",
    [
        "# T\n---\nagent: x\n---\n## A\nb\n",
        "---\nagent: x\n---\n# T\n\n- a\n",
        "## A\nprose\n### Sub\n---\nagent: x\n---\n",
        "## A\nprose\n\n---\nagent: x\n---\n\nprose\n",
        "## Todo\n---\nagent: x\n---\n- [ ] a\n",
    ],
)
def test_front_matter_that_belongs_to_no_entry_is_an_error(text: str) -> None:
    assert "belongs to no entry" in refusal(text).message


@pytest.mark.spec("FG-4")
def test_front_matter_of_the_document_is_left_alone() -> None:
    assert titles("---\ntitle: Backlog\ntags: [a]\n---\n# T\n\n## A\nb\n") == ["A"]


@pytest.mark.spec("FG-4")
def test_values_stay_text() -> None:
    [issue] = read("## A\nagent: yes\nmodel: 4.10\nruntime:\n")
    assert (issue.wishes.agent, issue.wishes.model, issue.wishes.runtime) == ("yes", "4.10", None)


@pytest.mark.spec("FG-5")
def test_dependencies_are_named_by_id_or_by_exact_title() -> None:
    plain = read("## **Make** `x`, then\na\n## B\nb\n")
    assert plain[0].title == "Make x, then"
    for name in (plain[0].id, '["**Make** `x`, then"]', '["Make x, then"]'):
        _, dependent = read(f"## **Make** `x`, then\na\n## B\ndepends_on: {name}\n\nb\n")
        assert dependent.wishes.depends_on == (plain[0].id,)
        assert dependent.id == plain[1].id


@pytest.mark.spec("FG-5")
def test_an_ambiguous_dependency_is_an_error() -> None:
    assert "several entries" in refusal("## A\nx\n## A\ny\n## B\ndepends_on: A\n").message


@pytest.mark.spec("FG-6")
def test_ids_are_readable_and_differ_by_title_and_path() -> None:
    [here] = parse("backlog.md", b"## Fix the Login!\n")
    [there] = parse("docs/backlog.md", b"## Fix the Login!\n")
    assert re.fullmatch(r"fix-the-login-[0-9a-f]{8}", here.id)
    assert here.id != there.id
    assert here.id == "fix-the-login-23fd6274", "an id must not change from one version to the next"


@pytest.mark.spec("FG-6")
def test_an_id_survives_what_does_not_change_the_title() -> None:
    [before] = read("## 1. Fïx\nold\n")
    variants = [
        "## 7. Fïx\nnew text\n",
        "# T\n\n- [x] **Fïx**\n",
        "## Fïx\nagent: x\n",
        "## " + unicodedata.normalize("NFD", "Fïx") + "\r\nold\r\n",
        "\ufeff## Fïx\n",
    ]
    assert {issue.id for text in variants for issue in read(text)} == {before.id}


@pytest.mark.spec("FG-6")
def test_entries_with_one_title_keep_their_ids_in_any_order() -> None:
    one, two = read("## Fix\nlogin\n## Fix\nlogout\n")
    assert one.id != two.id
    swapped = read("## Fix\nlogout\n## New\nx\n## Fix\nlogin\n")
    assert {(issue.body, issue.id) for issue in (one, two)} < {(issue.body, issue.id) for issue in swapped}
    ticked = read("## Fix\n- [x] login\nx\n## Fix\nlogout\n")
    unticked = read("## Fix\n- [ ] login\nx\n## Fix\nlogout\n")
    assert [issue.id for issue in ticked] == [issue.id for issue in unticked]


@pytest.mark.spec("FG-6")
def test_the_same_entry_twice_has_two_ids() -> None:
    ids = [issue.id for issue in read("- [ ] same\n" * 4)]
    assert len(set(ids)) == 4
    assert ids == [issue.id for issue in read("- [ ] same\n" * 4)]


@pytest.mark.spec("FG-7")
@pytest.mark.parametrize("newline", ["\r\n", "\r", "\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_line_ends_and_byte_order_marks_change_nothing(newline: str, encoding: str) -> None:
    text = "# B\n\n## Ä\nagent: x\n\nzwei\ndrei\n\n- [ ] no\n\n## 🧨\n"
    plain = parse("b", text.encode())
    assert [issue.title for issue in plain] == ["Ä", "🧨"]
    assert parse("b", text.replace("\n", newline).encode(encoding)) == plain


@pytest.mark.spec("FG-7")
@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf", b"   ", b"<!-- nothing -->"])
def test_an_empty_backlog_is_empty(data: bytes) -> None:
    assert parse("b", data) == []


@pytest.mark.spec("FG-7")
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"ok\n## caf\xe9\n", "b:2: not UTF-8 text"),
        (b"\x7fELF\x02\x01\x00\x00", "binary"),
        (bytes(range(256)), "not UTF-8 text"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (b"x" * (MAX_BYTES + 1), "more than"),
    ],
)
def test_what_is_not_text_is_a_clear_error(data: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse("b", data)


@pytest.mark.spec("FG-7")
@pytest.mark.timeout(100)
@pytest.mark.parametrize(
    "text",
    [
        "## Entry\n\n" + "text " * 20_000 + "\n",
        "- [ ] entry\n  detail\n" * 2_000,
        "> " * 20_000,
        "- " * 5_000,
        "  " * 50 + "- a\n",
        "[" * 50_000,
        "## " + "*_[`" * 10_000,
        "---\n" * 5_000,
        "---\nagent: x\n" * 2_000,
        "#" * 10_000,
        "\n" * 200_000,
    ],
)
def test_a_huge_or_twisted_backlog_comes_to_an_end(text: str) -> None:
    try:
        issues = parse("b", text.encode())
    except ConfigError:
        return
    assert len({issue.id for issue in issues}) == len(issues)


PIECES = st.sampled_from(
    [
        "#", "## ", "### T", "- ", "- [ ] ", "* [x] a", "1. ", "\n", "\n\n", "\r\n", "```", "```yaml\n",
        "~~~", "---\n", "===\n", "agent: x\n", "scope: [", "depends_on: a\n", "  ", "    ", "\t", "> ",
        "<!--", "-->", "text", "**", "`", "[", "](", "é", "e\u0301", "🧨", "\u202e", "\x0b", "\x85", "\u2028",
        "&#0;", "\\", "|", "Done", "Acceptance",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.text()


@pytest.mark.spec("FG-7")
@given(TEXTS)
def test_any_text_gives_issues_with_distinct_ids_or_a_clear_error(text: str) -> None:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return
    try:
        issues = parse("b", data)
    except ConfigError as error:
        assert error.message.startswith("b")
        return
    assert len({issue.id for issue in issues}) == len(issues)
    assert all(issue.title and issue.title == issue.title.strip() for issue in issues)


@pytest.mark.spec("FG-7")
@given(st.binary(max_size=200))
def test_any_bytes_give_issues_or_a_clear_error(data: bytes) -> None:
    try:
        parse("b", data)
    except ConfigError as error:
        assert error.message.startswith("b")


WORDS = st.text("abcé🧨 x", min_size=1, max_size=8).map(str.strip).filter(bool)
ENTRIES = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=12)


def written(entries: list[tuple[str, str]], form: str) -> bytes:
    return "".join(form.format(title=title, body=body) for title, body in entries).encode()


def identified(data: bytes) -> set[tuple[str, str, str]]:
    return {(issue.title, issue.body, issue.id) for issue in parse("b", data)}


FORMS = pytest.mark.parametrize(
    "form", ["## {title}\n\n{body}\n\n", "- [ ] {title}\n\n  {body}\n\n", "1. {title}\n\n   {body}\n\n"]
)


@pytest.mark.spec("FG-6")
@FORMS
@given(entries=ENTRIES, seed=st.integers())
def test_no_order_changes_an_id(form: str, entries: list[tuple[str, str]], seed: int) -> None:
    shuffled = list(entries)
    random.Random(seed).shuffle(shuffled)
    before, after = identified(written(entries, form)), identified(written(shuffled, form))
    assert len(before) == len(entries)
    assert before == after


@pytest.mark.spec("FG-6")
@FORMS
@given(entries=ENTRIES, new=WORDS, at=st.integers(0, 12))
def test_a_new_entry_anywhere_changes_no_other_id(
    form: str, entries: list[tuple[str, str]], new: str, at: int
) -> None:
    title = f"new {new}"
    more = [*entries[:at], (title, "y"), *entries[at:]]
    assert identified(written(entries, form)) < identified(written(more, form))
