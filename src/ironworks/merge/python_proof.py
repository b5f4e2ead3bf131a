"""Proof by declaration for Python: each function, class, import, assignment is what the sides make of it."""

import ast
import builtins
import symtable
from collections import Counter
from collections.abc import Iterator

from ironworks.merge.miss import Miss
from ironworks.verify.syntax import Function, parsed, symbols, tests_in

Key = tuple[object, ...]
_MODULE_NAMES = frozenset(
    {*dir(builtins), "__file__", "__name__", "__doc__", "__spec__", "__path__", "__package__", "__loader__"}
)


def misses(base: bytes, ours: bytes, theirs: bytes, result: bytes) -> Iterator[Miss]:
    """What is lost, altered, bound twice or no longer bound. Nothing is said where a side does not parse."""
    before, mine, other = (parsed(source) for source in (base, ours, theirs))
    if before is None or mine is None or other is None:
        return
    merged = parsed(result)
    if merged is None or symbols(result) is None:
        yield Miss("the result is no valid Python")
        return
    yield from _lost_tests(before, mine, other, merged)
    tables = [dict(_numbered(units(tree))) for tree in (before, mine, other, merged)]
    for key in sorted(set().union(*tables), key=repr):
        yield from _judge(key, *(table.get(key) for table in tables))
    twice = _bound_twice(merged) - _bound_twice(mine) - _bound_twice(other)
    yield from (Miss(f"{name} is bound twice") for name in sorted(twice))
    unbound = _unbound(result) - _unbound(ours) - _unbound(theirs)
    yield from (Miss(f"{name} is used and no longer there") for name in sorted(unbound))


def _lost_tests(base: ast.AST, ours: ast.AST, theirs: ast.AST, result: ast.AST) -> Iterator[Miss]:
    old, mine, other, merged = ({name for name, _ in tests_in(tree)} for tree in (base, ours, theirs, result))
    removed = (old - mine) | (old - other)
    for name in sorted((mine | other) - removed - merged):
        yield Miss(f"test {name} is lost")


def units(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[Key, ast.AST]]:
    """Every declaration under a name that survives its being edited; members of a class one by one."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            head = ast.ClassDef(node.name, node.bases, node.keywords, [], node.decorator_list)
            yield ("class", prefix + node.name), head
            yield from units(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{'.' * node.level}{node.module}" if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                yield ("import", prefix, module, alias.name, alias.asname), alias
        else:
            yield _key(node, prefix), node


def _key(node: ast.stmt, prefix: str) -> Key:
    if isinstance(node, Function):
        accessor = [ast.unparse(decorator) for decorator in node.decorator_list]
        return (
            "def",
            prefix + node.name,
            *(name for name in accessor if name.endswith((".setter", ".deleter"))),
        )
    if isinstance(node, ast.Assign):
        return "assign", prefix, *(ast.unparse(target) for target in node.targets)
    if isinstance(node, ast.AnnAssign):
        return "assign", prefix, ast.unparse(node.target)
    if isinstance(node, ast.If | ast.While):
        return type(node).__name__, prefix, ast.unparse(node.test)
    if isinstance(node, ast.Try):
        return "try", prefix, ast.unparse(node.body[0])
    if isinstance(node, ast.With | ast.For):
        head = node.items if isinstance(node, ast.With) else [node.target, node.iter]
        return type(node).__name__, prefix, *map(ast.unparse, head)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return "docstring", prefix
    return "statement", prefix, ast.dump(node)


def _numbered(found: Iterator[tuple[Key, ast.AST]]) -> Iterator[tuple[Key, ast.AST]]:
    seen: Counter[Key] = Counter()
    for key, node in found:
        seen[key] += key[0] != "import"  # The same import twice is the same.
        yield (*key, seen[key]), node


def _judge(
    key: Key, old: ast.AST | None, mine: ast.AST | None, other: ast.AST | None, merged: ast.AST | None
) -> Iterator[Miss]:
    """The three-way table for one declaration."""
    was, ours, theirs, now = (node and ast.dump(node) for node in (old, mine, other, merged))
    name = " ".join(str(part) for part in key[:-1] if part)[:200]
    if ours == theirs or was in {ours, theirs}:
        wanted = theirs if was == ours else ours
        if now != wanted:
            state = "lost" if now is None else "there again" if wanted is None else "not as its side has it"
            yield Miss(f"{name} is {state}")
    elif mine is None or other is None:
        yield Miss(f"{name} was changed by one side and removed by the other", fatal=False)
    elif merged is None:
        yield Miss(f"{name} is lost")
    elif key[0] != "docstring" and not (_is_constant(mine) and _is_constant(other)):
        yield from _lost_tokens(name, old, mine, other, merged)
    else:
        yield Miss(f"both sides changed {name}", fatal=False)


def _is_constant(node: ast.AST) -> bool:
    """A plain value, of which only one can be chosen."""
    return isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant)


def _lost_tokens(
    name: str, old: ast.AST | None, mine: ast.AST, other: ast.AST, merged: ast.AST
) -> Iterator[Miss]:
    """Names and values that a side brought in and the result does not have at all."""
    before, now = _tokens(old), _tokens(merged)
    for token in sorted(((_tokens(mine) | _tokens(other)) - before - now), key=repr):
        yield Miss(f"{name} lost {token}")


def _tokens(tree: ast.AST | None) -> frozenset[str]:
    found: set[str] = set()
    nodes = list(ast.walk(tree)) if tree else []
    prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.arg | ast.keyword) and node.arg:
            found.add(node.arg)
        elif isinstance(node, ast.Constant) and id(node) not in prose:
            found.add(repr(node.value))
    return frozenset(found)


def _bound_twice(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Counter[str]:
    """Names that functions, classes and imports of one container bind more than once, with how often."""
    bound: Counter[str] = Counter()
    inner: Counter[str] = Counter()
    imported: set[tuple[str, str]] = set()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported |= {(alias.asname or alias.name, ast.dump(_origin(node, alias))) for alias in node.names}
        elif isinstance(node, Function | ast.ClassDef):
            bound[prefix + node.name] += 1
        if isinstance(node, ast.ClassDef):
            inner |= _bound_twice(node, f"{prefix}{node.name}.")
    bound.update(prefix + name for name, _ in imported if name != "*" and "." not in name)
    return Counter({name: count for name, count in bound.items() if count > 1}) + inner


def _origin(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> ast.stmt:
    """The import of this one name alone, which may stand in a file any number of times."""
    if isinstance(node, ast.ImportFrom):
        return ast.ImportFrom(node.module, [alias], node.level)
    return ast.Import([alias])


def _unbound(source: bytes) -> frozenset[str]:
    """Global names that are used and bound nowhere in the module; none where a star import may bring them."""
    top = symbols(source)
    if top is None or b"import *" in source:
        return frozenset()
    bound: set[str] = set(_MODULE_NAMES)
    used: set[str] = set()
    pending = [top]
    while pending:
        table = pending.pop()
        pending += table.get_children()
        for symbol in table.get_symbols():
            if _binds(table, top, symbol):
                bound.add(symbol.get_name())
            elif symbol.is_referenced() and (table is top or symbol.is_global()):
                used.add(symbol.get_name())
    return frozenset(used - bound)


def _binds(table: symtable.SymbolTable, top: symtable.SymbolTable, symbol: symtable.Symbol) -> bool:
    makes = symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    return makes and (table is top or symbol.is_declared_global())
