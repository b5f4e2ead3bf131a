"""`ironworks grade`: run the hidden suite on commits, outside of any run."""

from pathlib import Path

import click

from ironworks.cli.options import config_option, json_option, place_options
from ironworks.cli.output import print_json, say
from ironworks.core.report import Grade


@click.command("grade")
@click.argument("revisions", nargs=-1, metavar="[REVISION]...")
@config_option
@place_options
@json_option
def command(
    revisions: tuple[str, ...],
    config: Path | None,
    repository: Path | None,
    state: Path | None,
    as_json: bool,
) -> int:
    """Grade each REVISION, by default the base branch, with the suite that `[project] hidden_tests` names.

    It gates nothing. Exit code: 0 every test passes on every revision, 1 not so, 2 it could not be graded.
    """
    from ironworks.cli.station import at_station

    where = {"config": config, "repository": repository, "state": state}
    grades = at_station(lambda factory: factory.grade(revisions), **where, asks=False)
    if as_json:
        print_json([grade.model_dump(mode="json") for grade in grades])
    else:
        for grade in grades:
            say(told(grade))
    if any(grade.problem for grade in grades):
        return 2
    return 0 if all(grade.passed == grade.total for grade in grades) else 1


def told(grade: Grade) -> str:
    """`hidden suite: 9 of 9 on 1a2b3c4d5e6f`, and what fails."""
    head = f"hidden suite on {grade.commit[:12]}"
    if grade.problem:
        return f"{head}: could not be used: {grade.problem}"
    missed = [f"  {outcome}: {test}" for test, outcome in grade.tests.items() if outcome != "passed"]
    return "\n".join([f"{head}: {grade.passed} of {grade.total}", *missed])


def kept(path: Path, commit: str) -> Grade | None:
    """The grade of `commit` that `path` holds; None when there is none that can be read."""
    try:
        grade = Grade.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return grade if grade.commit == commit else None
