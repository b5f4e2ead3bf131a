"""Six hostile workers, for `ironworks demo --chaos`."""

from collections.abc import Mapping

from ironworks.testing.demo.part import Part

BACKLOG = ""
CHAOS: Mapping[str, Part] = {}
