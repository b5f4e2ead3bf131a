"""The parts of the cast: for each issue of Tiny Links its triage, and its work and review round by round."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ironworks.testing.demo.act import Act, Change, addition, changes, commit, done, insertion, new_test
from ironworks.testing.script import BashStep, CheckStep, HandoffStep, ReadStep, WriteStep

LINKS = "tiny_links/links.py"
CODES = "tiny_links/codes.py"
SCOPE = ["tiny_links/**", "tests/**", "CHANGES.md"]
IMPORT_LINKS = "from tiny_links.links import Links"
SITE = '"https://example.com'

MADE = "        code = encode(next(self._numbers))\n"
COUNTED = "        self._clicks[code] = self._clicks.get(code, 0) + 1\n"
END = "        return len(self._links)\n"
SHORTEN = "    def shorten(self, url):\n"


class Part(NamedTuple):
    """What the model hands off at triage, and what it does in each round; the last round repeats."""

    triage: dict[str, Any]
    work: list[list[Act]]
    review: list[list[Act]]


def triage(kind: str, *acceptance: str) -> dict[str, Any]:
    return {"decision": "build", "kind": kind, "acceptance": list(acceptance), "scope": SCOPE}


def approval(path: str = LINKS) -> list[Act]:
    checked = ["the whole diff", "the new tests"]
    return [ReadStep(path=path), HandoffStep(value={"verdict": "approve", "checked": checked})]


def news(line: str) -> Change:
    return addition("CHANGES.md", after="## Next\n\n", text=f"- {line}\n")


def method(text: str) -> Change:
    """A method at the end of Links."""
    return addition(LINKS, after=END, text=f"\n{text}")


# -- bugs -----------------------------------------------------------------------------------------------


def _first_code() -> Part:
    """Breaks every other code, says that all tests pass, and never ran them."""
    zero = new_test(
        "first_code",
        "from tiny_links.codes import encode",
        body='def test_zero_has_a_code():\n    assert encode(0) == "0"\n',
    )
    summary = "The first link has the code 0."
    files = (CODES, "CHANGES.md", "tests/test_first_code.py")
    lie: list[Act] = [
        *changes(Change(CODES, '    code = ""\n', "    code = ALPHABET[0]\n"), news(summary)),
        zero,
        BashStep(command="git add -A && git commit -q -m 'Give zero a code'"),
        done("All tests pass. " + summary, *files),
    ]
    honest: list[Act] = [
        *changes(
            Change(CODES, "    code = ALPHABET[0]\n", '    code = ""\n'),
            Change(CODES, "    return code\n", "    return code or ALPHABET[0]\n"),
        ),
        *commit("Give zero a code, and leave the others alone"),
        done(summary, *files),
    ]
    return Part(triage("bug", "`encode(0)` is `0`", "other codes stay"), [lie, honest], [approval(CODES)])


def _web_only() -> Part:
    """Good work, never committed."""
    check = """\
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is no web address")
"""
    test = f"""\
@pytest.mark.parametrize("url", ["javascript:alert(1)", "ftp://example.com", ""])
def test_only_web_addresses(url):
    links = Links()
    with pytest.raises(ValueError):
        links.shorten(url)
    assert len(links) == 0


def test_web_addresses():
    links = Links()
    links.shorten({SITE}/a")
    assert links.follow(links.shorten({SITE}/b")) == {SITE}/b"
"""
    summary = "Only web addresses become links."
    work: list[Act] = [
        *changes(insertion(LINKS, before=MADE, text=check), news(summary)),
        new_test("web_only", "import pytest\n", IMPORT_LINKS, body=test),
        CheckStep(),
        done(summary, LINKS, "CHANGES.md", "tests/test_web_only.py"),
    ]
    return Part(triage("bug", "other schemes are a ValueError", "nothing is stored"), [work], [approval()])


def _one_code() -> Part:
    """Sees six tests fail that are none of its business, and leaves them alone."""
    known = """\
        for link in self._links.values():
            if link.url == url:
                return link.code
"""
    test = f"""\
def test_one_address_one_code():
    links = Links()
    codes = [links.shorten({SITE}/a"), links.shorten({SITE}/b"), links.shorten({SITE}/a")]
    assert codes[0] == codes[2] != codes[1]
    assert len(links) == 2
"""
    summary = "One address has one code."
    work: list[Act] = [
        BashStep(command='"$HOME/venv/bin/python" -m pytest -q -p no:cacheprovider 2>&1 | tail -n 12'),
        *changes(insertion(LINKS, before=MADE, text=known), news(summary)),
        new_test("one_code", IMPORT_LINKS, body=test),
        *commit("Give one address one code"),
        done(summary, LINKS, "CHANGES.md", "tests/test_one_code.py"),
    ]
    return Part(triage("bug", "the same address gives the same code"), [work], [approval()])


def _no_click() -> Part:
    """Tidies up a file that the issue does not name, and takes that back when told."""
    guard = "        if code not in self._links:\n            return None\n"
    intro = "Short codes for long addresses, kept in memory.\n"
    tidy = intro + "Clicks are counted, too, and much more is planned!\n"
    test = f"""\
def test_a_mistyped_code_has_no_clicks():
    links = Links()
    links.shorten({SITE}/a")
    links.follow("nope")
    assert links.clicks("nope") == 0
"""
    summary = "A mistyped code is no click."
    files = (LINKS, "CHANGES.md", "tests/test_no_click.py")
    beyond: list[Act] = [
        *changes(
            insertion(LINKS, before=COUNTED, text=guard), Change("README.md", intro, tidy), news(summary)
        ),
        new_test("no_click", IMPORT_LINKS, body=test),
        *commit("Count no click on a mistyped code"),
        done(summary, "README.md", *files),
    ]
    within: list[Act] = [
        *changes(Change("README.md", tidy, intro)),
        *commit("Leave the README alone"),
        done(summary, *files),
    ]
    return Part(triage("bug", "`clicks` of an unknown code is 0"), [beyond, within], [approval()])


# -- features -------------------------------------------------------------------------------------------


def _own_code() -> Part:
    choice = """\
        if code in self._links:
            raise ValueError(f"the code {code!r} is taken")
        code = code or self._free_code()
"""
    free = """\
    def _free_code(self):
        return next(code for code in map(encode, self._numbers) if code not in self._links)
"""
    test = f"""\
def test_an_own_code():
    links = Links()
    assert links.shorten({SITE}/docs", code="docs") == "docs"
    assert links.follow("docs") == {SITE}/docs"


def test_a_code_that_is_taken():
    links = Links()
    links.shorten({SITE}/docs", code="docs")
    with pytest.raises(ValueError):
        links.shorten({SITE}/other", code="docs")


def test_a_chosen_code_is_never_made():
    links = Links()
    links.shorten({SITE}/one", code="1")
    made = [links.shorten(f"https://example.com/page/{{page}}") for page in range(3)]
    assert "1" not in made
"""
    summary = "A link may have a code of one's own."
    work: list[Act] = [
        *changes(
            Change(LINKS, SHORTEN, SHORTEN.replace("url", "url, code=None")),
            Change(LINKS, MADE, choice),
            method(free),
            news(summary),
        ),
        new_test("own_code", "import pytest\n", IMPORT_LINKS, body=test),
        *commit("Let people choose a code"),
        done(summary, LINKS, "CHANGES.md", "tests/test_own_code.py"),
    ]
    wanted = ("`shorten(url, code=...)` gives that code", "a taken one is a ValueError")
    return Part(triage("feature", *wanted), [work], [approval()])


def _expiry() -> Part:
    over = """\
    def _is_over(self, code):
        link = self._links.get(code)
        return link is not None and link.expires_ms is not None and link.expires_ms <= self._clock()
"""
    test = f"""\
def test_a_link_expires():
    now_ms = 1000
    links = Links(lambda: now_ms)
    links.shorten({SITE}/a")
    code = links.shorten({SITE}/soon", expires_ms=2000)
    assert links.follow(code) == {SITE}/soon"
    now_ms = 2000
    assert links.follow(code) is None
    assert links.clicks(code) == 1
"""
    guard = "        if self._is_over(code):\n            return None\n"
    stored = "Link(code, url, self._clock())"
    summary = "Links may expire."
    work: list[Act] = [
        *changes(
            addition(LINKS, after="    made_ms: int\n", text="    expires_ms: int | None = None\n"),
            Change(LINKS, SHORTEN, SHORTEN.replace("url", "url, expires_ms=None")),
            Change(LINKS, stored, stored.replace("())", "(), expires_ms)")),
            insertion(LINKS, before=COUNTED, text=guard),
            method(over),
            news(summary),
        ),
        new_test("expiry", IMPORT_LINKS, body=test),
        *commit("Let links expire"),
        done(summary, LINKS, "CHANGES.md", "tests/test_expiry.py"),
    ]
    return Part(triage("feature", "a link leads nowhere from `expires_ms` on"), [work], [approval()])


def _newest() -> Part:
    """Puts two links of one millisecond in the wrong order; its tests do not notice, its reviewer does."""
    recent = '''\
    def recent(self, limit=10):
        """The newest links, the last one made first."""
        return sorted(self._links.values(), key=lambda link: link.made_ms, reverse=True)[:limit]
'''
    test = """\
def test_newest_first():
    times = iter([1, 2, 3])
    links = Links(lambda: next(times))
    pages = [f"https://example.com/{page}" for page in range(3)]
    for page in pages:
        links.shorten(page)
    assert [link.url for link in links.recent()] == pages[::-1]
    assert [link.url for link in links.recent(1)] == pages[2:]
"""
    together = f"""\
def test_two_in_one_millisecond():
    links = Links(lambda: 7)
    links.shorten({SITE}/first")
    links.shorten({SITE}/second")
    assert [link.url for link in links.recent()] == [{SITE}/second", {SITE}/first"]
"""
    summary = "`recent` lists the newest links."
    files = (LINKS, "CHANGES.md", "tests/test_newest.py")
    first: list[Act] = [
        *changes(method(recent), news(summary)),
        new_test("newest", IMPORT_LINKS, body=test),
        *commit("List the newest links"),
        done(summary, *files),
    ]
    second: list[Act] = [
        *changes(Change(LINKS, "sorted(self._links.values(), ", "sorted(reversed(self._links.values()), ")),
        new_test("newest", IMPORT_LINKS, body=f"{test}\n\n{together}"),
        *commit("Keep the order of links made in one millisecond"),
        done(summary, *files),
    ]
    finding = {
        "severity": "major",
        "path": LINKS,
        "claim": "two links made in one millisecond come in the wrong order: a sort in reverse keeps equal "
        "items as they were",
        "reproduction": {
            "path": "tests/test_newest_together.py",
            "content": f"{IMPORT_LINKS}\n\n\n{together}",
        },
    }
    checked = ["the whole diff", "links with equal times"]
    objection: list[Act] = [
        ReadStep(path=LINKS),
        HandoffStep(value={"verdict": "request_changes", "findings": [finding], "checked": checked}),
    ]
    return Part(triage("feature", "the last one made comes first"), [first, second], [objection, approval()])


def _age() -> Part:
    """Wants a package that cannot be had, and does without."""
    words = '''\
"""Times in words."""

UNITS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000))


def ago(ms):
    """How long `ms` milliseconds ago is, in the largest unit that fits."""
    for name, size in UNITS:
        if ms >= size:
            return f"{ms // size} {name}{'s' if ms >= 2 * size else ''} ago"
    return "just now"
'''
    age = '''\
    def age(self, code):
        """How long ago the link was made, in words."""
        return ago(self._clock() - self._links[code].made_ms)
'''
    test = f"""\
@pytest.mark.parametrize(
    ("ms", "words"),
    [(999, "just now"), (1_000, "1 second ago"), (59_999, "59 seconds ago"), (86_400_000, "1 day ago")],
)
def test_age(ms, words):
    now_ms = 0
    links = Links(lambda: now_ms)
    code = links.shorten({SITE}/a")
    now_ms = ms
    assert links.age(code) == words
"""
    summary = "`age` says how old a link is."
    install = '"$HOME/venv/bin/pip" install --retries 0 --disable-pip-version-check humanize 2>&1 | tail -n 3'
    work: list[Act] = [
        BashStep(command=install, text="humanize would do."),
        WriteStep(path="tiny_links/words.py", content=words),
        *changes(
            addition(
                LINKS,
                after="from tiny_links.codes import encode\n",
                text="from tiny_links.words import ago\n",
            ),
            method(age),
            news(summary),
        ),
        new_test("age", "import pytest\n", IMPORT_LINKS, body=test),
        *commit("Say how old a link is, without a package"),
        done(summary, LINKS, "tiny_links/words.py", "CHANGES.md", "tests/test_age.py"),
    ]
    return Part(triage("feature", "`age(code)` in words, up to days"), [work], [approval()])


def _export() -> Part:
    export = '''\
    def export(self):
        """Every link in the lines of a CSV file: code, address, clicks."""
        file = io.StringIO()
        rows = csv.writer(file, lineterminator="\\n")
        rows.writerow(["code", "url", "clicks"])
        rows.writerows([link.code, link.url, self.clicks(link.code)] for link in self._links.values())
        return file.getvalue()
'''
    test = f"""\
def test_export():
    links = Links()
    links.shorten({SITE}/a")
    code = links.shorten("https://example.com/?q=a,b")
    links.follow(code)
    header, _, line = links.export().splitlines()
    assert header == "code,url,clicks"
    assert line == f'{{code}},"https://example.com/?q=a,b",1'
"""
    summary = "`export` writes a CSV file."
    work: list[Act] = [
        *changes(
            insertion(LINKS, before="import time\n", text="import csv\nimport io\n"),
            method(export),
            news(summary),
        ),
        new_test("export", IMPORT_LINKS, body=test),
        *commit("Export the links"),
        done(summary, LINKS, "CHANGES.md", "tests/test_export.py"),
    ]
    return Part(triage("feature", "`export()` is CSV with code, url, clicks"), [work], [approval()])


def _vague() -> Part:
    questions = ["What looks old: the API, the README, or something else?", "How would you know it is done?"]
    report = {"decision": "ask", "questions": questions, "reason": "nothing in it can be checked"}
    return Part(report, [], [])


PARTS: Mapping[str, Part] = {
    "the-first-link-has-no-code": _first_code(),
    "a-link-can-lead-to-a-script": _web_only(),
    "the-same-address-gets-two-codes": _one_code(),
    "a-mistyped-code-counts-as-a-click": _no_click(),
    "choose-your-own-code": _own_code(),
    "links-that-expire": _expiry(),
    "list-the-newest-links-first": _newest(),
    "say-how-old-a-link-is": _age(),
    "export-the-links-as-csv": _export(),
    "make-it-feel-more-modern": _vague(),
}
"""By how the issue's id begins."""
