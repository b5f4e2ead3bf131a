"""What is cut keeps its last words."""

import pytest

from ironworks.core.excerpt import CUT, excerpt

TRACE = "no answer: Traceback (most recent call last):\n" + "  File x, line 1\n" * 500 + "ValueError: why"


@pytest.mark.spec("EN-35")
@pytest.mark.parametrize("most", [40, 200, 4000])
def test_the_last_words_stay_and_the_size_is_kept(most: int) -> None:
    cut = excerpt(TRACE, most)
    assert len(cut) == most and cut.endswith("ValueError: why")
    assert cut.startswith("no answer:") and CUT in cut


@pytest.mark.parametrize("most", range(6))
def test_however_little_there_is_room_for_it_is_kept(most: int) -> None:
    assert len(excerpt(TRACE, most)) == most


def test_what_fits_is_left_alone() -> None:
    assert excerpt("short", 5) == "short"
