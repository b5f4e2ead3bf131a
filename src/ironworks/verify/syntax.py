"""Reads a stranger's Python source without running it and without a warning on our own terminal."""

import ast
import symtable
import threading
import warnings
from collections.abc import Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef
_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
_quiet = threading.Lock()
"""Held while warnings are silenced, which concerns the whole process."""


def parsed(source: bytes) -> ast.Module | None:
    """The syntax tree; None when it is not Python that this interpreter reads."""
    try:
        with _quiet, warnings.catch_warnings(action="ignore"):
            return ast.parse(source)
    except _UNREADABLE:
        return None


def tests_in(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Every test function with its qualified name, `TestX.test_y`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from tests_in(node, f"{prefix}{node.name}.")
        elif isinstance(node, Function) and node.name.startswith("test"):
            yield f"{prefix}{node.name}", node


def symbols(source: bytes) -> symtable.SymbolTable | None:
    """The compiler's own table of names and scopes; None when it does not compile."""
    try:
        with _quiet, warnings.catch_warnings(action="ignore"):
            return symtable.symtable(source.decode("utf-8-sig", "replace"), "source", "exec")
    except _UNREADABLE:
        return None
