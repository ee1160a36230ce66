"""When a segment ends: when it has many parts, or is old."""

from __future__ import annotations

from catalog.growth.segments import Segments
from tests.support.catalog_parts import CountingIds


def test_a_segment_ends_when_it_has_many_parts() -> None:
    ids = CountingIds()
    segments = Segments(ids, 3, 5.0)
    seen = []
    for _ in range(7):
        seen.append(segments.current)
        segments.stored(100.0)
    first, second, third = dict.fromkeys(seen)
    assert seen == [first] * 3 + [second] * 3 + [third]
    assert segments.ended == 2


def test_the_current_segment_is_that_of_new_buckets() -> None:
    """The first document of a bucket lies beside the parts that are made now."""
    ids = CountingIds()
    segments = Segments(ids, 1, 5.0)
    for _ in range(3):
        assert ids.suffix()[:2] == segments.current == ids.segment()
        segments.stored(0.0)


def test_a_segment_ends_when_its_first_part_is_old() -> None:
    segments = Segments(CountingIds(), 100, 5.0)
    first = segments.current
    segments.stored(100.0)
    segments.stored(104.0)
    segments.end_old(104.9)
    assert (segments.current, segments.ended) == (first, 0)
    segments.end_old(105.0)
    assert segments.current != first
    assert segments.ended == 1


def test_the_next_segment_is_as_old_as_its_own_first_part() -> None:
    segments = Segments(CountingIds(), 2, 5.0)
    segments.stored(100.0)
    segments.stored(100.0)
    segments.end_old(200.0)
    segments.stored(200.0)
    segments.end_old(204.0)
    assert segments.ended == 1
    segments.stored(204.0)
    assert segments.ended == 2, "as many parts as the first one had"


def test_a_segment_without_parts_does_not_age() -> None:
    """Or a process that does nothing would use up the numbers of segments."""
    segments = Segments(CountingIds(), 2, 5.0)
    for seconds in range(0, 100, 10):
        segments.end_old(float(seconds))
    assert segments.ended == 0
    segments.stored(100.0)
    segments.end_old(105.0)
    segments.end_old(200.0)
    assert segments.ended == 1
