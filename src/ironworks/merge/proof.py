"""Proves of a merged file that nothing of either side is lost. Shares no code with what merged it."""

import posixpath
import re
from collections.abc import Iterator

from ironworks.core.models import Finding
from ironworks.merge import data_proof, line_proof, python_proof
from ironworks.merge.miss import Miss
from ironworks.verify.path import shown

_MARKER = re.compile(rb"^(<{7}|>{7}|\|{7})(?: .*)?\r?$", re.MULTILINE)


def proof(
    path: str, base: bytes | None, ours: bytes | None, theirs: bytes | None, result: bytes | None
) -> list[Finding]:
    """What is wrong with `result`, the merge of `ours` and `theirs` that grew from `base` (None = absent).

    Empty or without a fatal finding = proven. What only one side changed must be as that side has it; where
    both changed the same thing, what each added must be there in some form.
    """
    if (result == ours and theirs in {base, ours}) or (result == theirs and ours in {base, theirs}):
        return []
    if result is None:
        return [_finding(path, Miss("the file is gone"))]
    try:
        misses = list(_misses(path, base or b"", ours or b"", theirs or b"", result))
    except RecursionError:
        misses = [Miss("it is nested too deeply to be proved")]
    return [_finding(path, miss) for miss in misses]


def _misses(path: str, base: bytes, ours: bytes, theirs: bytes, result: bytes) -> Iterator[Miss]:
    known = {line for side in (base, ours, theirs) for line in _MARKER.findall(side)}
    if any(marker not in known for marker in _MARKER.findall(result)):
        yield Miss("conflict markers are left")
    suffix = posixpath.splitext(path)[1].lower()
    texts = [_text(data) for data in (base, ours, theirs, result)]
    if None in texts:
        yield Miss("both sides changed a file that is not text")
        return
    old, mine, other, merged = (text or "" for text in texts)
    if suffix in {".py", ".pyi"}:
        yield from python_proof.misses(base, ours, theirs, result)
    documents = data_proof.documents(suffix, old, mine, other)
    if documents:
        base_data, our_data, their_data = documents
        yield from data_proof.misses(suffix, base_data, our_data, their_data, merged)
    if not documents or suffix != ".json":  # In JSON a comma is part of a line and no part of the data.
        yield from line_proof.misses(old, mine, other, merged, sections=suffix in {".md", ".markdown"})


def _text(data: bytes) -> str | None:
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _finding(path: str, miss: Miss) -> Finding:
    name = shown(path)
    return Finding(code="unproven", message=f"{name}: {miss.what}", fatal=miss.fatal, path=name)
