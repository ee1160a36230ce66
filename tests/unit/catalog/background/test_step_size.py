"""How large steps are, by what their commits took."""

from __future__ import annotations

import pytest

from catalog.background.joining_pace import JoiningOptions
from catalog.background.step_size import FEWEST_DOCUMENTS, StepSize

OPTIONS = JoiningOptions(group_parts=500, group_rows=8000, window_seconds=0.01)


@pytest.mark.parametrize("seconds", [0.0, 0.001])
def test_steps_are_as_large_as_they_may_be_if_commits_are_quick(seconds: float) -> None:
    size = StepSize(OPTIONS)
    assert (size.documents, size.rows) == (160, 2560), "nothing is known"
    size.committed(100, seconds)
    assert (size.documents, size.rows) == (500, 8000)


def test_a_commit_takes_the_time_of_a_window() -> None:
    size = StepSize(OPTIONS)
    size.committed(500, 0.025)
    assert (size.documents, size.rows) == (200, 3200)


def test_one_slow_commit_among_others_is_soon_forgotten() -> None:
    size = StepSize(OPTIONS)
    for _ in range(20):
        size.committed(500, 0.005)
    size.committed(500, 1.0)
    assert size.documents < 500
    for _ in range(20):
        size.committed(size.documents, size.documents * 1e-5)
    assert size.documents == 500


def test_steps_have_a_few_documents_however_slow_commits_are() -> None:
    size = StepSize(OPTIONS)
    size.committed(1, 10.0)
    assert size.documents == FEWEST_DOCUMENTS
