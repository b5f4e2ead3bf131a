"""Reports are read as they are, and refused when they cannot be."""

import contextlib
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ironworks.core.errors import RefusedError
from ironworks.verify.report import MAX_DEPTH, Report, parse

PYTEST = b"""<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="5">
<testcase classname="tests.test_a" name="test_ok" time="0.001" />
<testcase classname="tests.test_a" name="test_bad"><failure message="assert 1 == 2">def test_bad(): ...
E assert 1 == 2</failure></testcase>
<testcase classname="tests.test_a" name="test_later"><skipped type="pytest.xfail" message="soon" /></testcase>
<testcase classname="" name="tests.test_b"><error message="collection failure">ImportError</error></testcase>
<testcase classname="tests.test_a.TestX" name="test_p[a-1]" />
</testsuite></testsuites>"""

NODE = b"""<?xml version="1.0" encoding="utf-8"?><testsuites>
<testcase name="top" time="0.1" classname="test"/>
<testsuite name="links" tests="2"><testcase name="adds" classname="test"/>
<testsuite name="deep"><testcase name="adds" classname="test"><failure type="x"/></testcase></testsuite>
</testsuite></testsuites>"""

TAP = b"""TAP version 13
# Subtest: links
    # Subtest: adds
    ok 1 - adds
    not ok 2 - drops
    1..2
not ok 1 - links
ok 2 - slow # SKIP no network
not ok 3 - later # TODO
ok 4
1..4
"""


@pytest.mark.spec("VF-1")
def test_junit_of_pytest_gives_each_test_its_outcome() -> None:
    report = parse(PYTEST, "unit")
    assert report.runner == "pytest"
    assert report.tests == {
        "unit::tests.test_a::test_ok": "passed",
        "unit::tests.test_a::test_bad": "failed",
        "unit::tests.test_a::test_later": "skipped",
        "unit::::tests.test_b": "error",
        "unit::tests.test_a.TestX::test_p[a-1]": "passed",
    }
    assert report.messages["unit::tests.test_a::test_bad"].startswith("assert 1 == 2\ndef test_bad")
    assert set(report.messages) == {"unit::tests.test_a::test_bad", "unit::::tests.test_b"}


def test_junit_of_node_tells_tests_of_one_name_apart_by_the_titles_around_them() -> None:
    assert parse(NODE, "js").tests == {
        "js::test::top": "passed",
        "js::links::adds": "passed",
        "js::links > deep::adds": "failed",
    }


@pytest.mark.spec("VF-1")
def test_tap_gives_each_test_its_outcome() -> None:
    assert parse(TAP, "t").tests == {
        "t::links::adds": "passed",
        "t::links::drops": "failed",
        "t::::links": "failed",
        "t::::slow": "skipped",
        "t::::later": "skipped",
        "t::::4": "passed",
    }


def test_of_two_results_under_one_id_the_worse_counts() -> None:
    for first, second in (("", "<failure/>"), ("<failure/>", ""), ("<skipped/>", "<error/>")):
        cases = "".join(f'<testcase name="t">{verdict}</testcase>' for verdict in (first, second))
        xml = f"<testsuite>{cases}</testsuite>"
        assert parse(xml.encode(), "s").tests["s::test::t"] in {"failed", "error"}


@pytest.mark.spec("VF-1")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b" \n\t", "empty"),
        (b"<testsuite><testcase name='a'>", "not well-formed"),
        (b"<testsuite>\xff\xfe</testsuite>", "not well-formed"),
        (b"<?xml version='1.0' encoding='no-such'?><testsuite/>", "not well-formed"),
        (b"<html><testcase name='a'/></html>", "not JUnit"),
        (b"<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><testsuite name='&x;'/>", "document type"),
        ("<!DOCTYPE a [<!ENTITY b 'bb'>]><testsuite/>".encode("utf-16"), "document type"),
        (b"<testsuite>" * (MAX_DEPTH + 1), "nested deeper"),
        (b"all tests passed, trust me", "neither JUnit XML nor TAP"),
        (b"1..3\nok 1\nok 2\n", "says it has 3 tests but holds 2"),
        (b"ok 1\nok 2\n", "says it has None tests"),
        (b"1..2\nok 1\nBail out! the disk is full\nok 2", "gave up"),
        (b"\x00\x01\x02", "neither"),
    ],
)
def test_a_report_that_is_no_report_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        parse(data, "s")


def test_a_report_without_tests_is_read_as_such() -> None:
    assert parse(b"<testsuites><testsuite name='pytest' tests='0'/></testsuites>", "s") == Report(
        runner="pytest"
    )


@pytest.mark.spec("VF-1")
def test_what_is_kept_of_a_huge_report_is_bounded() -> None:
    long = "x" * 100_000
    case = f'<testcase name="{long}{{}}"><failure message="{long}">{long}</failure></testcase>'
    xml = f"<testsuite>{''.join(case.format(n) for n in range(20))}</testsuite>"
    started = time.monotonic()
    report = parse(xml.encode(), "s")
    assert time.monotonic() - started < 60
    assert len(report.tests) == 20  # Cut names stay different.
    assert max(map(len, report.tests)) < 1100
    assert max(map(len, report.messages.values())) < 2100


@settings(max_examples=200)
@given(st.one_of(st.binary(), st.text().map(str.encode), st.binary().map(lambda data: b"<testsuite>" + data)))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    with contextlib.suppress(RefusedError):
        assert isinstance(parse(data, "s"), Report)
