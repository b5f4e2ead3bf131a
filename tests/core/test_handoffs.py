"""The six handoffs and their schemas."""

import pytest
from pydantic import ValidationError

from ironworks.core.crash import CRASH_POINTS, arm, crash_point
from ironworks.core.errors import IronworksError
from ironworks.core.events import EVENT
from ironworks.core.handoffs import ANSWERS, HANDOFFS, schema


@pytest.mark.spec("EN-24")
@pytest.mark.parametrize("name", HANDOFFS)
def test_each_handoff_publishes_a_closed_schema(name: str) -> None:
    document = schema(name)
    assert document["$schema"].endswith("2020-12/schema")
    assert document["additionalProperties"] is False and document["title"] == name


@pytest.mark.spec("EN-24")
@pytest.mark.parametrize("model", ANSWERS.values())
def test_an_unknown_key_and_a_missing_one_are_refused(model: type) -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        model(surprise=1)
    with pytest.raises(ValidationError, match="Field required"):
        model()


def test_every_event_survives_its_own_json() -> None:
    event = EVENT.validate_python({"kind": "IssueParked", "run": "r", "issue": "i", "reason": "stalled"})
    assert EVENT.validate_json(EVENT.dump_json(event)) == event
    with pytest.raises(ValidationError):
        EVENT.validate_python({"kind": "NeverHeardOf", "run": "r"})


def test_every_error_has_a_code_of_its_own_and_an_exit_code() -> None:
    def leaves(kind: type[IronworksError]) -> list[type[IronworksError]]:
        return [kind, *(leaf for below in kind.__subclasses__() for leaf in leaves(below))]

    ours = [kind for kind in leaves(IronworksError) if kind.__module__ == IronworksError.__module__]
    codes = [kind.code for kind in ours]
    assert len(codes) == len(set(codes)) > 10
    assert {kind.exit_code for kind in ours} <= {2, 3}


@pytest.mark.spec("EN-9")
def test_a_crash_point_does_nothing_until_it_is_armed() -> None:
    seen: list[str] = []
    crash_point("any")
    arm(seen.append)
    try:
        crash_point("other")
    finally:
        arm(None)
    crash_point("any")
    assert seen == ["other"]
    assert len(CRASH_POINTS) == len(set(CRASH_POINTS)) >= 40
