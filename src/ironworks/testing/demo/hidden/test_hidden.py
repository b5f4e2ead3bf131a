"""Grades Tiny Links, one test for each issue that can be built. No agent ever sees it."""

import csv
import io

import pytest

from tiny_links.codes import encode
from tiny_links.links import Links

SITE = "https://example.com"


class Clock:
    """Tells the time it is set to, in milliseconds."""

    def __init__(self, now_ms=0):
        self.now_ms = now_ms

    def __call__(self):
        return self.now_ms


def test_first_code():
    links = Links()
    assert links.follow(links.shorten(SITE)) == SITE
    assert [encode(0), encode(62)] == ["0", "10"]


def test_web_addresses_only():
    links = Links()
    for url in ("javascript:alert(1)", "data:text/html,x", "ftp://example.com", ""):
        with pytest.raises(ValueError):
            links.shorten(url)
    assert len(links) == 0
    assert links.shorten("http://example.com") and links.shorten(SITE)


def test_one_code_per_address():
    links = Links()
    codes = [links.shorten(f"{SITE}/{page}") for page in (1, 2, 1, 2, 3)]
    assert codes[0] == codes[2] != codes[1] == codes[3] != codes[4]
    assert len(links) == 3


def test_only_links_have_clicks():
    links = Links()
    links.shorten(f"{SITE}/0")
    code = links.shorten(f"{SITE}/1")
    links.follow(code)
    links.follow(f"{code}x")
    assert [links.clicks(code), links.clicks(f"{code}x")] == [1, 0]


def test_own_codes():
    links = Links()
    assert links.shorten(f"{SITE}/docs", code="docs") == "docs"
    with pytest.raises(ValueError):
        links.shorten(f"{SITE}/other", code="docs")
    links.shorten(f"{SITE}/one", code="1")
    made = {links.shorten(f"{SITE}/{page}") for page in range(5)}
    assert len(made) == 5 and "1" not in made
    assert links.follow("1") == f"{SITE}/one"


def test_links_expire():
    clock = Clock(1_000)
    links = Links(clock)
    links.shorten(f"{SITE}/0")
    code = links.shorten(f"{SITE}/soon", expires_ms=2_000)
    clock.now_ms = 1_999
    assert links.follow(code) == f"{SITE}/soon"
    clock.now_ms = 2_000
    assert links.follow(code) is None
    assert links.clicks(code) == 1


def test_newest_first():
    clock = Clock(1)
    links = Links(clock)
    pages = [f"{SITE}/{page}" for page in range(6)]
    for page in pages:
        clock.now_ms += pages.index(page) == 3
        links.shorten(page)
    assert [link.url for link in links.recent()] == pages[::-1]
    assert [link.url for link in links.recent(2)] == [pages[5], pages[4]]


def test_age_in_words():
    clock = Clock(0)
    links = Links(clock)
    links.shorten(f"{SITE}/0")
    code = links.shorten(f"{SITE}/1")
    told = {}
    for now_ms in (999, 1_000, 59_000, 120_000, 7_200_000, 86_400_000):
        clock.now_ms = now_ms
        told[now_ms] = links.age(code)
    assert list(told.values()) == [
        "just now",
        "1 second ago",
        "59 seconds ago",
        "2 minutes ago",
        "2 hours ago",
        "1 day ago",
    ]


def test_export():
    links = Links()
    links.shorten(f"{SITE}/0")
    code = links.shorten(f'{SITE}/?q="a,b"')
    links.follow(code)
    rows = list(csv.DictReader(io.StringIO(links.export())))
    assert rows[1] == {"code": code, "url": f'{SITE}/?q="a,b"', "clicks": "1"}
    assert len(rows) == 2
