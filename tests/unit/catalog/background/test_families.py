"""Which buckets of several processes become one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog.background.families import (
    BUCKETS_AT_ONCE,
    MOST_BUCKETS,
    MOST_OF_A_SERIES,
    SETTLED_SECONDS,
    Bounds,
    Families,
    Family,
)
from catalog.buckets.resting import Rested

BOUNDS = Bounds(span_seconds=3600, rows=1000, size_bytes=100_000)
UUID = b"u" * 16


def known(_: bytes) -> Bounds | None:
    return BOUNDS


def rested(start_seconds: int, name: str, *, series: int = 1, rows: int = 10, size_bytes: int = 100) -> Rested:
    stored_id = start_seconds.to_bytes(4, "big") + bytes(2) + name.encode().ljust(6, b"-")
    return Rested(UUID, series.to_bytes(16, "big"), stored_id, rows, size_bytes)


def due(
    families: Families, seconds: float = SETTLED_SECONDS, bounds: Callable[..., Bounds | None] = known
) -> list[Family]:
    return families.due(seconds, bounds)


def test_the_bucket_that_starts_first_gets_the_others() -> None:
    families = Families()
    first, second, third = rested(100, "b"), rested(160, "a"), rested(220, "c")
    families.told("two", [second], 0.0)
    families.told("three", [third, first], 0.0)
    assert due(families, SETTLED_SECONDS / 2) == []
    assert due(families) == [Family("three", first.stored_id, [("two", second.stored_id)])]
    assert due(families) == []


def test_a_series_waits_until_all_have_told() -> None:
    families = Families()
    families.told("one", [rested(100, "a")], 0.0)
    assert due(families, 100.0) == []
    families.told("two", [rested(100, "b")], 100.0)
    assert due(families, 100.0 + SETTLED_SECONDS / 2) == []
    assert len(due(families, 100.0 + SETTLED_SECONDS)) == 1


def test_buckets_of_one_process_stay_as_they_are() -> None:
    families = Families()
    families.told("one", [rested(100, "a"), rested(160, "b")], 0.0)
    assert due(families) == []


@pytest.mark.parametrize("other", [rested(3700, "b"), rested(160, "b", rows=991), rested(160, "b", size_bytes=99_901)])
def test_what_does_not_fit_into_one_bucket_stays(other: Rested) -> None:
    families = Families()
    families.told("one", [rested(100, "a")], 0.0)
    families.told("two", [other], 0.0)
    assert due(families) == []


def test_what_just_fits_becomes_one() -> None:
    families = Families()
    families.told("one", [rested(100, "a")], 0.0)
    families.told("two", [rested(3699, "b", rows=990, size_bytes=99_900)], 0.0)
    assert len(due(families)) == 1


def test_what_does_not_fit_may_fit_into_another_one() -> None:
    families = Families()
    one = [rested(100, "a", rows=600), rested(3000, "c", rows=300)]
    two = [rested(200, "b", rows=500), rested(3100, "d", rows=100)]
    families.told("one", one, 0.0)
    families.told("two", two, 0.0)
    assert due(families) == [
        Family("one", one[0].stored_id, [("two", two[1].stored_id)]),
        Family("two", two[0].stored_id, [("one", one[1].stored_id)]),
    ]


def test_collections_that_are_not_known_are_left_until_they_are() -> None:
    families = Families()
    families.told("one", [rested(100, "a")], 0.0)
    families.told("two", [rested(100, "b")], 0.0)
    assert due(families, bounds=lambda _: None) == []
    assert len(due(families, 2 * SETTLED_SECONDS)) == 1


def test_what_is_remembered_is_bounded() -> None:
    families = Families()
    families.told("one", [rested(100, "a", series=number) for number in range(MOST_BUCKETS + 1)], 0.0)
    families.told("two", [rested(100, "b", series=0)], 0.0)
    families.told("two", [rested(100, "b", series=5)], 0.0)
    found: list[Family] = []
    while families.is_due(SETTLED_SECONDS):
        found += due(families)
    assert [family.others[0][0] for family in found] == ["two"]
    families = Families()
    first = rested(100, "a")
    families.told("one", [first, *(rested(200 + number, "x") for number in range(MOST_OF_A_SERIES - 1))], 0.0)
    families.told("two", [rested(100, "y")], 0.0)
    assert due(families)[0].stored_id != first.stored_id


def test_some_buckets_are_looked_at_at_once_and_only_what_was_told_of_again() -> None:
    """However many buckets the series have, so the event loop goes on meanwhile."""
    families = Families()
    count = 4 * BUCKETS_AT_ONCE // MOST_OF_A_SERIES
    for owner, name in (("one", "a"), ("two", "b")):
        starts = range(100, 100 + 10_000 * MOST_OF_A_SERIES // 2, 10_000)
        families.told(owner, [rested(start, name, series=each) for each in range(count) for start in starts], 0.0)
    asked: list[bytes] = []

    def counted(collection: bytes) -> Bounds | None:
        asked.append(collection)
        return Bounds(span_seconds=3600, rows=15, size_bytes=100_000)

    assert due(families, bounds=counted) == []
    assert len(asked) <= BUCKETS_AT_ONCE // MOST_OF_A_SERIES + 1
    for _ in range(5):
        due(families, bounds=counted)
    assert len(asked) == count
    assert not families.is_due(SETTLED_SECONDS)
    families.told("one", [rested(100, "a", rows=1)], 1.0)
    assert len(due(families, 1.0 + SETTLED_SECONDS, counted)) == 1
    assert len(asked) == count + 1


def test_the_latest_that_was_told_of_a_bucket_counts() -> None:
    families = Families()
    families.told("one", [rested(100, "a" + "---0", rows=999)], 0.0)
    families.told("one", [latest := rested(100, "a" + "---1", rows=5)], 0.0)
    families.told("two", [other := rested(100, "b---0")], 0.0)
    (family,) = due(families)
    assert {family.stored_id, *(each for _, each in family.others)} == {latest.stored_id, other.stored_id}


def test_nobody_is_believed_about_a_bucket_of_another_one() -> None:
    families = Families()
    families.told("one", [rested(100, "a")], 0.0)
    families.told("two", [rested(100, "a", rows=1)], 0.0)
    families.told("three", [rested(100, "b")], 0.0)
    (family,) = due(families)
    assert {family.owner, *(name for name, _ in family.others)} == {"one", "three"}


def test_what_is_left_of_a_series_waits_for_others() -> None:
    families = Families()
    families.told("one", [rested(100, "a", rows=900)], 0.0)
    families.told("two", [rested(110, "b", rows=500)], 0.0)
    assert due(families) == []
    families.told("three", [rested(120, "c", rows=100)], 1.0)
    (family,) = due(families, 1.0 + SETTLED_SECONDS)
    assert (family.owner, [name for name, _ in family.others]) == ("one", ["three"])
    families.told("four", [rested(130, "d", rows=100)], 5.0)
    (family,) = due(families, 5.0 + SETTLED_SECONDS)
    assert (family.owner, [name for name, _ in family.others]) == ("two", ["four"])


def test_nothing_is_remembered_for_another_gatherer() -> None:
    families = Families()
    families.told("one", [rested(100, "a")], 0.0)
    families.forget_all()
    families.told("two", [rested(100, "b")], 0.0)
    assert due(families) == []
