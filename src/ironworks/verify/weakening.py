"""Reads Python sources for what makes tests prove less: lost assertions, skips, objects equal to all."""

import ast
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ironworks.verify.syntax import Function, parsed, tests_in

_SKIPS = frozenset(
    {"skip", "skipif", "skipIf", "skipUnless", "xfail", "expectedFailure", "importorskip", "SkipTest"}
)
_LOOSE_RAISES = frozenset({"raises", "assertRaises", "warns"})


class Weakening(NamedTuple):
    """One way in which a file became weaker."""

    code: str
    message: str


def weakened_tests(old: bytes, new: bytes) -> list[Weakening]:
    """How the tests of one Python file became weaker. Advice only, since there can be good reasons."""
    before, after = parsed(old), parsed(new)
    if before is None or after is None:
        return []
    try:
        return _weakened(before, after)
    except RecursionError:
        return [Weakening("unreadable", "nested too deeply to be looked into")]


def _weakened(before: ast.Module, after: ast.Module) -> list[Weakening]:
    surviving = dict(tests_in(after))
    fewer = [
        Weakening("fewer-assertions", f"{name} has {kept} assertions where it had {had}")
        for name, function in tests_in(before)
        if name in surviving
        and (kept := assertions(surviving[name])) < (had := assertions(function))
        and not _parametrised(surviving[name])
    ]
    added = _skips(after) - _skips(before)
    skips = [Weakening("skip-added", f"{name} added {count} times") for name, count in sorted(added.items())]
    return fewer + skips


def assertions(function: Function) -> int:
    """Assertions that can fail: constants, a value compared with itself, and swallowed ones do not count."""
    return sum(_counts(node) for node in _unswallowed(function))


def _unswallowed(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Try) and any(_swallows(handler) for handler in child.handlers):
            for statement in (*child.handlers, *child.orelse, *child.finalbody):
                yield from _unswallowed(statement)
            continue
        yield child
        yield from _unswallowed(child)


def _swallows(handler: ast.ExceptHandler) -> bool:
    caught = (
        {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else {""}
    )
    raises = any(isinstance(node, ast.Raise) for node in ast.walk(handler))
    return bool(caught & {"", "AssertionError", "Exception", "BaseException"}) and not raises


def _counts(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return not _trivial(node.test)
    if isinstance(node, ast.Call):
        name = _last_name(node.func)
        return name.startswith("assert") or name in _LOOSE_RAISES or name == "fail"
    return False


def _trivial(test: ast.expr) -> bool:
    if isinstance(test, ast.Constant):
        return True
    if isinstance(test, ast.Compare):
        sides = {ast.dump(side) for side in (test.left, *test.comparators)}
        return len(sides) == 1
    return False


def _parametrised(function: Function) -> bool:
    return any("parametrize" in ast.dump(decorator) for decorator in function.decorator_list)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _skips(tree: ast.AST) -> Counter[str]:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name))
    return Counter(name for node in nodes if (name := _last_name(node)) in _SKIPS)


def always_equal(source: bytes) -> list[str]:
    """Names of classes whose `__eq__` says yes to anything: they pass every assertion."""
    tree = parsed(source)
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)) if tree else ()
    return [node.name for node in classes if any(_says_yes(member) for member in node.body)]


def _says_yes(member: ast.stmt) -> bool:
    if isinstance(member, Function) and member.name == "__eq__":
        body = [
            node
            for node in member.body
            if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        ]
        return len(body) == 1 and isinstance(body[0], ast.Return) and _is_true(body[0].value)
    if isinstance(member, ast.Assign) and any(_last_name(target) == "__eq__" for target in member.targets):
        return isinstance(member.value, ast.Lambda) and _is_true(member.value.body)
    return False


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
