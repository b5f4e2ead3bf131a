"""The model of `ironworks demo`: what it does for each issue of Tiny Links, and the traps it walks into."""

import random
from collections.abc import Mapping

from ironworks.testing.demo.act import Act, next_step, resolution
from ironworks.testing.demo.part import PARTS, Part
from ironworks.testing.script import DEFAULT_SCENES, HandoffStep, ReadStep, Seen, Step, TokenCount


class Cast:
    """A `Play`. `seed` sets how long the model thinks; what it does depends on what it is shown alone."""

    usage = TokenCount(input_tokens=3200, cache_read_input_tokens=14_000, output_tokens=420)

    def __init__(self, seed: int = 1, *, parts: Mapping[str, Part] = PARTS, pace_s: float = 0.6) -> None:
        """`parts` by the beginning of an issue's id; `pace_s`: how long an answer takes on average."""
        self._seed = seed
        self._parts = parts
        self._pace_s = pace_s

    def next(self, seen: Seen) -> Step | None:
        step = next_step(self._acts(seen), seen)
        pause_s = step.pause_s or self._pause_s(seen)
        return step.model_copy(update={"pause_s": pause_s})

    def _acts(self, seen: Seen) -> list[Act]:
        part = self._part(seen.issue)
        if seen.stage == "resolve":
            return [resolution]
        if part is None:
            return list(next(scene.steps for scene in DEFAULT_SCENES if scene.stage == seen.stage))
        if seen.stage == "triage":
            return [ReadStep(path="README.md"), HandoffStep(value=part.triage)]
        rounds = part.work if seen.stage == "work" else part.review
        return rounds[min(seen.round, len(rounds)) - 1]

    def _part(self, issue: str) -> Part | None:
        return next((part for name, part in self._parts.items() if issue.startswith(name)), None)

    def _pause_s(self, seen: Seen) -> float:
        """Between half of the pace and one and a half of it, the same each time the same is asked."""
        place = f"{self._seed}/{seen.stage}/{seen.issue}/{seen.round}/{seen.step}"
        return self._pace_s * (0.5 + random.Random(place).random())
