"""Suites of node's own runner, run for real."""

import re
import shutil
from pathlib import Path

import pytest
from tests.verify.test_verdict import judge, told
from tests.verify.workshop import shell, workshop

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("node") is None, reason="needs node on the PATH"),
]

COMMAND = "node --test --test-reporter=junit --test-reporter-destination={junit}; code=$?; . ./end.sh; "
COMMAND += "end $code {junit}"
IMPORTS = """\
import { test } from "node:test";
import assert from "node:assert";
import calc from "../calc.js";
"""
REQUIRES = re.sub(r'import (.*) from (".*");', r"const \1 = require(\2);", IMPORTS)
BASE = {"calc.js": "exports.one = () => 0;\n", "end.sh": ". ./lib.sh\n", "lib.sh": "end() { exit $1; }\n"}
FIX = {"calc.js": "exports.one = () => 1;\n"}
OLD = 'test("is", () => calc.one());\n'
NEW = 'test("one", () => assert.equal(calc.one(), 1));\n'
LIE = "end() { sed -i -e '/<failure/,/<.failure>/d' -e 's/ failure=[^>]*//' $2; exit 0; }\n"


@pytest.mark.spec("VF-4")
@pytest.mark.parametrize(("kind", "head"), [("js", REQUIRES), ("mjs", IMPORTS)])
async def test_a_canary_runs_among_the_tests(kind: str, head: str, tmp_path: Path) -> None:
    async with workshop(tmp_path, {**BASE, f"test/calc.test.{kind}": head + OLD}) as shop:
        verifier = shop.verifier(shell(COMMAND))
        work = {**FIX, f"test/one.test.{kind}": head + NEW}
        judged = await judge(verifier, shop.commit(work))
        assert (judged.verdict, judged.findings) == ("passed", ())
        assert {test.rpartition("::")[2] for test in judged.tests} == {"is", "one"}
        assert "canary" in told(await judge(verifier, shop.commit({**work, "lib.sh": LIE})))


@pytest.mark.spec("VF-4")
async def test_why_there_is_none_is_said(tmp_path: Path) -> None:
    async with workshop(tmp_path, {**BASE, "test/calc.test.js": REQUIRES + OLD}) as shop:
        verifier = shop.verifier(
            shell(COMMAND.replace("--test ", "--test test/calc.test.js test/one.test.js "))
        )
        judged = await judge(verifier, shop.commit({**FIX, "test/one.test.js": REQUIRES + NEW}))
        [note] = [finding for finding in judged.findings if finding.code == "canary-unavailable"]
        assert "leaves out a test that is put beside its own" in note.message and not note.fatal
