"""How large steps are, by what their commits took."""

from __future__ import annotations

import pytest

from catalog.background.joining_pace import JoiningOptions
from catalog.background.step_size import FEWEST_DOCUMENTS, LARGEST, SMALLEST, StepSize
from catalog.growth.backlog import Backlog

OPTIONS = JoiningOptions(group_parts=500, group_rows=8000, window_seconds=0.01)


def step_size(waiting: float = 1.0) -> StepSize:
    """While this many times what should wait at most does."""
    backlog = Backlog(full=100)
    for _ in range(int(100 * waiting)):
        backlog.stored()
    return StepSize(OPTIONS, backlog)


@pytest.mark.parametrize("seconds", [0.0, 0.001])
def test_steps_are_as_large_as_they_may_be_if_commits_are_quick(seconds: float) -> None:
    size = step_size()
    assert (size.documents, size.rows) == (160, 2560), "nothing is known"
    size.committed(100, seconds)
    assert (size.documents, size.rows) == (500, 8000)


def test_where_the_commit_carries_nothing_out_a_step_is_as_large_whatever_waits() -> None:
    size = step_size(0.0)
    size.committed(100, 0.0)
    assert (size.documents, size.rows) == (500, 8000)


@pytest.mark.parametrize(
    ("waiting", "documents"),
    [(0.0, 200 * SMALLEST), (0.1, 200 * SMALLEST), (0.5, 100), (1.0, 200), (1.5, 300), (9.0, 200 * LARGEST)],
)
def test_a_commit_takes_the_time_of_a_window_and_less_if_little_waits(waiting: float, documents: int) -> None:
    size = step_size(waiting)
    size.committed(500, 0.025)
    assert (size.documents, size.rows) == (documents, 16 * documents)


def test_one_slow_commit_among_others_is_soon_forgotten() -> None:
    size = step_size()
    for _ in range(20):
        size.committed(500, 0.005)
    size.committed(500, 1.0)
    assert size.documents < 500
    for _ in range(20):
        size.committed(size.documents, size.documents * 1e-5)
    assert size.documents == 500


@pytest.mark.parametrize(("waiting", "documents"), [(0.0, SMALLEST * FEWEST_DOCUMENTS), (1.0, FEWEST_DOCUMENTS)])
def test_steps_have_a_few_documents_however_slow_commits_are(waiting: float, documents: int) -> None:
    size = step_size(waiting)
    size.committed(1, 10.0)
    assert size.documents == documents


def test_of_one_bucket_a_step_takes_no_fewer_parts_if_little_waits() -> None:
    size = step_size(0.0)
    size.committed(500, 0.025)
    assert size.parts_of_a_bucket == FEWEST_DOCUMENTS > size.documents
    size = step_size(1.0)
    size.committed(500, 0.025)
    assert size.parts_of_a_bucket == size.documents == 200


def test_steps_are_large_while_joins_are_behind() -> None:
    """Also when little is left: each waits for inserts of many documents, whatever its size."""
    backlog = Backlog(fewest_behind=10, full=100)
    for _ in range(11):
        backlog.stored()
    backlog.measure(0, 1.0, 0.0)
    assert backlog.is_behind
    size = StepSize(OPTIONS, backlog)
    size.committed(1, 10.0)
    assert size.documents == LARGEST * FEWEST_DOCUMENTS
