"""Tests that prove less than before are noticed; tests that are merely written otherwise are not."""

import ast

import pytest

from ironworks.verify.syntax import Function
from ironworks.verify.weakening import always_equal, assertions, weakened_tests

OLD = b"import pytest\n\n\ndef test_a():\n    assert f(1) == 1\n    assert f(2) == 2\n"


def count(body: str) -> int:
    function = ast.parse(f"def test():\n{body}").body[0]
    assert isinstance(function, Function)
    return assertions(function)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    assert a == 1", 1),
        ("    assert a == a", 0),
        ("    assert True", 0),
        ("    self.assertEqual(a, 1)", 1),
        ("    with pytest.raises(E):\n        f()", 1),
        ("    try:\n        assert a\n    except AssertionError:\n        pass", 0),
        ("    try:\n        assert a\n    except:\n        pass", 0),
        ("    try:\n        assert a\n    except ValueError:\n        pass", 1),
        ("    try:\n        assert a\n    except Exception:\n        raise", 1),
        ("    try:\n        f()\n    except Exception as e:\n        assert e.args", 1),
        ("    for x in y:\n        if x:\n            assert x.z", 1),
        ("    pass", 0),
    ],
)
def test_only_assertions_that_can_fail_count(body: str, expected: int) -> None:
    assert count(body) == expected


@pytest.mark.parametrize(
    ("new", "codes"),
    [
        (OLD, []),
        (OLD.replace(b"    assert f(2) == 2\n", b""), ["fewer-assertions"]),
        (OLD.replace(b"f(2) == 2", b"True"), ["fewer-assertions"]),
        (OLD.replace(b"def", b"@pytest.mark.skip\ndef"), ["skip-added"]),
        (OLD.replace(b"def", b"@pytest.mark.xfail(strict=False)\ndef"), ["skip-added"]),
        (OLD + b"    assert f(3) == 3\n", []),
        (OLD.replace(b"test_a", b"test_b"), []),
        (b"@pytest.mark.parametrize('x', [1, 2])\ndef test_a(x):\n    assert f(x) == x\n", []),
        (b"def (", []),
        (b"\xff\xfe\0", []),
    ],
)
def test_weaker_tests_are_told_by_what_makes_them_so(new: bytes, codes: list[str]) -> None:
    assert [found.code for found in weakened_tests(OLD, new)] == codes


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("class A:\n    def __eq__(self, other):\n        return True\n", ["A"]),
        ("class A:\n    def __eq__(self, other):\n        'Always.'\n        return True\n", ["A"]),
        ("class A:\n    __eq__ = lambda self, other: True\n", ["A"]),
        ("def f():\n    class A:\n        def __eq__(self, o):\n            return True\n", ["A"]),
        ("class A:\n    def __eq__(self, other):\n        return self.x == other.x\n", []),
        ("class A:\n    def __ne__(self, other):\n        return True\n", []),
        ("class A(", []),
    ],
)
def test_objects_that_equal_everything_are_found(source: str, expected: list[str]) -> None:
    assert always_equal(source.encode()) == expected


@pytest.mark.parametrize("depth", [500, 800, 880, 2000, 100_000])
def test_no_depth_of_nesting_is_too_much(depth: int) -> None:
    deep = b"    assert " + b"-" * depth + b"f() == 1\n"
    for old, new in ((OLD, OLD + deep), (OLD + deep, OLD + deep + deep)):
        assert {found.code for found in weakened_tests(old, new)} <= {"unreadable"}


def test_a_strange_source_costs_no_warning_and_no_crash() -> None:
    assert always_equal(b"x = '\\d'\nassert (1, 'always')\n") == []
    assert always_equal(b"(" * 10_000) == []
    assert always_equal(b"-" * 100_000 + b"1") == []
