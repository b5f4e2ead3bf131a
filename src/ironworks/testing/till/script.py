"""What the scripted model does with Till's three issues, and the traps that it walks into."""

from ironworks.testing.script import (
    BashStep,
    CheckStep,
    EditStep,
    HandoffStep,
    ReadStep,
    Scene,
    Script,
    Step,
    TokenCount,
    WriteStep,
)

TOTAL = "the-total-forgets-the-first-item-*"
DISCOUNT = "a-discount-*"
TAX = "a-tax-*"

_TEST = """\
import unittest

from till.{module} import {name}


class Test{title}(unittest.TestCase):
{cases}"""


def script() -> Script:
    """Three issues: a worker that lies, work left uncommitted and found wanting, and a conflict."""
    return Script(
        scenes=(
            _triage(TOTAL, "bug", "`total([100, 250])` is 350"),
            _triage(DISCOUNT, "feature", "`discount(200, 25)` is 150"),
            _triage(TAX, "feature", "`with_tax(100, 19)` is 119"),
            Scene(stage="work", issue=TOTAL, round=1, steps=_lie()),
            Scene(stage="work", issue=TOTAL, round=2, steps=_honest_total()),
            Scene(stage="work", issue=DISCOUNT, round=1, steps=_uncommitted_discount()),
            Scene(stage="work", issue=DISCOUNT, round=2, steps=_bounded_discount()),
            Scene(stage="work", issue=TAX, steps=_tax()),
            Scene(stage="review", issue=DISCOUNT, round=1, steps=_objection()),
            Scene(stage="resolve", steps=_both_rates()),
        ),
        usage=TokenCount(input_tokens=1800, output_tokens=240),
    )


def _triage(issue: str, kind: str, acceptance: str) -> Scene:
    report = {"decision": "build", "kind": kind, "acceptance": [acceptance]}
    return Scene(stage="triage", issue=issue, steps=(ReadStep(path="README.md"), HandoffStep(value=report)))


def _test(module: str, name: str, *cases: tuple[str, str, str]) -> WriteStep:
    body = "\n".join(
        f"    def test_{case}(self):\n        self.assertEqual({call}, {result})\n"
        for case, call, result in cases
    )
    title = name.title().replace("_", "")
    content = _TEST.format(module=module, name=name, title=title, cases=body)
    return WriteStep(path=f"tests/test_{name}.py", content=content)


def _done(summary: str, *files: str) -> HandoffStep:
    return HandoffStep(
        value={
            "status": "done",
            "summary": summary,
            "files_changed": list(files),
            "tests_added": [file for file in files if file.startswith("tests/")],
            "tests_pass": True,
        }
    )


def _commit(message: str) -> BashStep:
    return BashStep(command=f"git add -A && git commit -q -m '{message}'")


_TOTAL_TEST = _test("prices", "total", ("of_two", "total([100, 250])", "350"))


def _lie() -> tuple[Step, ...]:
    """Says that all tests pass; never ran them."""
    return (
        _TOTAL_TEST,
        EditStep(path="till/prices.py", old="sum(prices[1:])", new="sum(prices[0:1])"),
        _commit("Sum from the first item on"),
        _done("All tests pass.", "till/prices.py", "tests/test_total.py"),
    )


def _honest_total() -> tuple[Step, ...]:
    return (
        EditStep(path="till/prices.py", old="sum(prices[0:1])", new="sum(prices)"),
        CheckStep(),
        _commit("Sum every item"),
        _done("The total counts every item.", "till/prices.py", "tests/test_total.py"),
    )


_DISCOUNT = '''

def discount(amount, percent):
    """`amount` less `percent` of it, rounded down."""
    return amount * (100 - percent) // 100
'''
_BOUNDED = _DISCOUNT.replace("(100 - percent)", "max(0, 100 - percent)")
_WITH_TAX = '''

def with_tax(amount, percent):
    """`amount` with `percent` of it on top."""
    return amount + share(amount, percent)
'''


def _append(name: str, text: str) -> BashStep:
    """Also when a kill makes the model do it again."""
    there = f"grep -q 'def {name}' till/rates.py"
    return BashStep(
        command=f"{there} || cat >> till/rates.py <<'END'{chr(10)}{text.rstrip(chr(10))}{chr(10)}END"
    )


def _uncommitted_discount() -> tuple[Step, ...]:
    """Good work, but never committed."""
    return (
        _append("discount", _DISCOUNT),
        _test("rates", "discount", ("of_a_quarter", "discount(200, 25)", "150")),
        CheckStep(),
        _done("Added discount().", "till/rates.py", "tests/test_discount.py"),
    )


def _bounded_discount() -> tuple[Step, ...]:
    return (
        EditStep(path="till/rates.py", old="(100 - percent)", new="max(0, 100 - percent)"),
        _test(
            "rates",
            "discount",
            ("of_a_quarter", "discount(200, 25)", "150"),
            ("above_all_of_it", "discount(200, 150)", "0"),
        ),
        CheckStep(),
        _commit("A discount never pays the customer"),
        _done("discount() stops at zero.", "till/rates.py", "tests/test_discount.py"),
    )


def _objection() -> tuple[Step, ...]:
    """A reviewer with a test that shows what it says."""
    content = _TEST.format(
        module="rates",
        name="discount",
        title="Bound",
        cases="    def test_never_negative(self):\n        self.assertGreaterEqual(discount(200, 150), 0)\n",
    )
    finding = {
        "severity": "major",
        "path": "till/rates.py",
        "claim": "a discount above 100 % makes the shop pay the customer",
        "reproduction": {"path": "tests/test_discount_bound.py", "content": content},
    }
    return (
        ReadStep(path="till/rates.py"),
        HandoffStep(
            value={"verdict": "request_changes", "findings": [finding], "checked": ["the whole diff"]}
        ),
    )


def _tax() -> tuple[Step, ...]:
    return (
        _append("with_tax", _WITH_TAX),
        _test("rates", "with_tax", ("of_nineteen_percent", "with_tax(100, 19)", "119")),
        CheckStep(),
        _commit("Add with_tax()"),
        _done("Added with_tax().", "till/rates.py", "tests/test_with_tax.py"),
    )


_RATES = '''"""Percentages on amounts."""


def share(amount, percent):
    """`percent` of `amount`, rounded down."""
    return amount * percent // 100
'''


def _both_rates() -> tuple[Step, ...]:
    """Both sides appended a function at the same place: both stay."""
    content = _RATES + _BOUNDED + _WITH_TAX
    value = {
        "path": "till/rates.py",
        "content": content,
        "explanation": "two functions, independent of each other",
    }
    return (HandoffStep(value=value),)
