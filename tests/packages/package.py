"""Real packages that ship their tests, and what `ironworks init` makes of each."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.e2e.releases import fetched, unpacked

TIMEOUT_S = 600
PACKAGES: Mapping[str, str] = {
    "iniconfig==2.3.0": "pytest",
    "itsdangerous==2.2.0": "pytest",
    "pluggy==1.6.0": "pytest",
    "toolz==1.1.0": "pytest",
    "wcwidth==0.2.14": "pytest",
    "humanize==4.14.0": "pytest",
    "tabulate==0.9.0": "pytest",
    "cachetools==6.2.2": "pytest",
    "blinker==1.9.0": "pytest",
    "more-itertools==10.8.0": "unittest",
    "pyasn1==0.6.1": "unittest",
    "xmltodict==1.0.2": "unittest",
    "@fastify/error@4.3.0": "node:test",
    "@fastify/forwarded@3.1.2": "node:test",
    "@fastify/deepmerge@3.2.4": "tape",
    "@fastify/busboy@3.2.6": "node:test",
    "brorand@1.1.0": "mocha",
    "hash.js@1.1.7": "mocha",
    "damerau-levenshtein@1.0.8": "mocha",
    "mpath@0.9.0": "mocha",
    "domutils@4.0.2": "vitest",
    "css-what@8.0.0": "vitest",
    "card-validator@10.0.4": "jest",
    "eslint-plugin-jsx-a11y@6.10.2": "jest",
}
"""By requirement (`==`: pip's, `@`: npm's), with the runner its project uses."""


class Outcome(NamedTuple):
    """How the base of one package turned out. `test`: the command that `init` wrote down."""

    package: str
    runner: str
    test: str
    passed: int
    failing: tuple[str, ...]
    problem: str

    @property
    def verdict(self) -> str:
        """`green`, `described` (it runs, and what fails is named), or `no`."""
        if self.problem or not self.passed:
            return "no"
        return "described" if self.failing else "green"


def outcome_of(package: str, folder: Path) -> Outcome:
    """Fetch it, make it a repository, `ironworks init`, commit, and look at its base. Nothing is edited."""
    root = source(package, folder / "fetched")
    env = {**os.environ, "HOME": str(folder / "home"), "ANTHROPIC_API_KEY": "sk-test-packages"}
    (folder / "home").mkdir(exist_ok=True)
    _git(root, "init", "-q", "-b", "main")
    _commit(root, package)
    made = _ironworks(root, env, "init", "--json")
    if "test" not in made:
        return Outcome(package, PACKAGES[package], "", 0, (), json.dumps(made)[:500])
    _commit(root, "Ironworks")
    looked = _ironworks(root, env, "doctor", "--base", "--json")
    baseline = looked.get("baseline") or {"passed": 0, "failing": []}
    problem = "; ".join(
        f"{check['name']}: {check['detail']}" for check in looked.get("checks", ()) if not check["ok"]
    )
    failing = tuple(baseline["failing"])
    return Outcome(package, PACKAGES[package], made["test"], baseline["passed"], failing, problem)


def source(package: str, folder: Path) -> Path:
    """Its unpacked source, through pip or npm as they are set up here. Skips where they reach no registry."""
    if "==" in package:
        return unpacked(fetched(folder, package))
    folder.mkdir(parents=True)
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm")
    done = subprocess.run(
        [npm, "pack", "--silent", package], cwd=folder, capture_output=True, timeout=TIMEOUT_S
    )
    if done.returncode:
        pytest.skip(f"needs a package registry that npm can reach: {done.stderr[-300:]!r}")
    root = unpacked(next(folder.glob("*.tgz")))
    # npm leaves it out of every package.
    (root / ".gitignore").write_text("node_modules/\n", "utf-8")
    return root


def _ironworks(root: Path, env: Mapping[str, str], *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "ironworks", *words], cwd=root, env=env, capture_output=True, timeout=TIMEOUT_S
    )
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"error": done.stderr.decode("utf-8", "replace")[-1000:]}


def _commit(root: Path, message: str) -> None:
    _git(root, "add", "-A", "-f")
    _git(root, "-c", "user.name=Package", "-c", "user.email=package@localhost", "commit", "-q", "-m", message)


def _git(root: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, timeout=60)


def table(outcomes: Sequence[Outcome]) -> str:
    """A table in Markdown."""
    lines = [
        "| package | runner | base | passed | failing | `test` as guessed |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {found.package} | {found.runner} | {found.verdict} | {found.passed} | {len(found.failing)} "
        f"| `{found.test}` |".replace("``", "")
        for found in outcomes
    ]
    return "\n".join(lines)
