"""What is wanted and not yet so: every one of these fails until its entry of backlog.md is done."""

import pytest

from tiny_links.codes import encode
from tiny_links.links import Links

PAGE = "https://example.com/page"


def test_zero_has_a_code():
    assert encode(0) == "0"


def test_scripts_are_refused():
    with pytest.raises(ValueError):
        Links().shorten("javascript:alert(1)")


def test_one_code_per_address():
    links = Links()
    assert links.shorten(PAGE) == links.shorten(PAGE)


def test_a_mistyped_code_is_no_click():
    links = Links()
    links.follow("nope")
    assert links.clicks("nope") == 0


def test_an_own_code():
    assert Links().shorten(PAGE, code="page") == "page"


def test_an_export():
    assert Links().export().splitlines() == ["code,url,clicks"]
