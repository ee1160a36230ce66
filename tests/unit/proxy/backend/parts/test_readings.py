"""What joins read and delete: few ranges of ids, whatever the number of buckets."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from bson import ObjectId

from catalog.bson.codec import encode
from catalog.parts import IdRange, id_of
from catalog.ports import Span
from proxy.backend.parts.readings import by_span, ranges_of, windows

START = b"time"
PARTS = 4
"""The number of parts that a bucket can have in a segment."""


def part_id(segment: int, place: int, counter: int) -> bytes:
    return START + segment.to_bytes(2, "big") + place.to_bytes(3, "big") + counter.to_bytes(3, "big")


def document(identity: bytes) -> bytes:
    return encode({"_id": ObjectId(identity), "data": {}})


def some(segment: int, place: int, first: int = 0, last: int = PARTS - 1) -> IdRange:
    """The parts of a bucket in a segment."""
    return IdRange(part_id(segment, place, first), part_id(segment, place, last), last - first + 1)


def span(*ranges: IdRange) -> Span:
    return Span(ranges, b"".join, ())


def within(ids: Sequence[bytes], *ranges: IdRange) -> list[bytes]:
    return [each for part in ranges for each in ids if part.first_id <= each <= part.last_id]


def test_there_is_a_window_for_each_segment() -> None:
    """Between two segments of one bucket lie the parts of very many others."""
    spans = [
        span(some(1, 5), some(2, 5, 1, 2)),
        span(some(2, 7)),
        span(some(1, 6, 3, 3), some(1, 6, 0, 1), some(2, 6)),
    ]
    assert windows(spans) == [
        (IdRange(part_id(1, 5, 0), part_id(1, 6, 3), 4 + 1 + 2), [some(1, 5), some(1, 6, 3, 3), some(1, 6, 0, 1)]),
        (IdRange(part_id(2, 5, 1), part_id(2, 7, 3), 2 + 4 + 4), [some(2, 5, 1, 2), some(2, 7), some(2, 6)]),
    ]


def test_segments_of_buckets_with_other_starts_are_other_segments() -> None:
    early, late = some(1, 5), some(1, 6)
    late = IdRange(b"timf" + late.first_id[4:], b"timf" + late.last_id[4:], late.documents)
    assert windows([span(early), span(late)]) == [(early, [early]), (late, [late])]


def test_what_was_read_belongs_to_the_bucket_in_whose_ranges_it_is() -> None:
    ids = [part_id(segment, place, counter) for segment in (1, 2) for place in (5, 6, 7) for counter in range(PARTS)]
    spans = [span(some(1, 5), some(2, 5, 1, 2)), span(some(1, 7, 2, 3), some(2, 7))]
    readings = [list(map(document, ids[:12])), list(map(document, ids[12:]))]
    found = by_span(readings, spans)
    assert [[id_of(each) for each in stored] for stored in found] == [within(ids, *each.ranges) for each in spans]
    assert [len(stored) for stored in found] == [6, 6]


def test_documents_come_in_the_order_of_the_ranges() -> None:
    """Which is that of the rows, even when the numbers of segments have begun anew."""
    joined = span(some(9, 5), some(1, 5))
    readings = [[document(part_id(9, 5, each)) for each in range(PARTS)], [document(part_id(1, 5, 3))]]
    (stored,) = by_span(readings, [joined])
    assert [id_of(each) for each in stored] == [*(part_id(9, 5, each) for each in range(PARTS)), part_id(1, 5, 3)]


@pytest.mark.parametrize(
    ("left", "count"),
    [
        ([(1, 0), (1, 3), (2, 3)], 3),
        ([(2, 3)], 1),
        ([(1, 0), (1, 3), (2, 2)], 3),
        ([(1, 0)], 1),
        ([], 0),
    ],
    ids=["all", "the last one", "all but the last one", "the first one", "none"],
)
def test_whatever_is_left_of_a_bucket_belongs_to_it(left: list[tuple[int, int]], count: int) -> None:
    """Other documents of it were deleted, or were joined before."""
    readings = [[document(part_id(segment, 5, counter))] for segment, counter in left]
    (stored,) = by_span(readings, [span(some(1, 5), some(2, 5))])
    assert len(stored) == count


def test_ranges_have_what_goes_and_nothing_else_that_was_read() -> None:
    reading = [document(part_id(1, place, counter)) for place in (5, 6, 7) for counter in range(2)]
    gone = {id_of(each) for each in reading[:3] + reading[4:]} | {part_id(2, 5, 0)}
    assert ranges_of(reading, gone) == [
        IdRange(part_id(1, 5, 0), part_id(1, 6, 0), 3),
        IdRange(part_id(1, 7, 0), part_id(1, 7, 1), 2),
    ]
    assert ranges_of(reading, set()) == []


def test_neighbours_go_with_one_range() -> None:
    """However many they are."""
    reading = [document(part_id(1, place, each)) for place in range(100) for each in range(2)]
    assert ranges_of(reading, set(map(id_of, reading))) == [IdRange(part_id(1, 0, 0), part_id(1, 99, 1), 200)]


@pytest.mark.parametrize("seed", range(20))
def test_any_buckets_get_what_is_theirs(seed: int) -> None:
    chosen = random.Random(seed)
    ids = [
        part_id(segment, place, counter)
        for segment in range(4)
        for place in range(8)
        for counter in range(PARTS)
        if chosen.random() < 0.7
    ]
    spans = []
    for place in chosen.sample(range(8), 5):
        segments = chosen.sample(range(4), chosen.randint(1, 4))
        spans.append(span(*(some(each, place, chosen.randint(0, 1), chosen.randint(1, 3)) for each in segments)))
    readings = [[document(each) for each in within(ids, window)] for window, _ in windows(spans)]
    wanted = [within(ids, *each.ranges) for each in spans]
    found = [[id_of(each) for each in stored] for stored in by_span(readings, spans)]
    assert found == wanted
    gone = {each for stored in found for each in stored}
    read = {id_of(each) for reading in readings for each in reading}
    ranges = [each for reading in readings for each in ranges_of(reading, gone)]
    assert {each for each in read if within([each], *ranges)} == gone
    assert sum(each.documents for each in ranges) == len(gone)
