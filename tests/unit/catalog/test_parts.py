"""Parts are valid buckets whose join is the bucket that would have been written in one piece."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from bson import DatetimeMS, ObjectId

from catalog.bson.codec import decode, encode
from catalog.errors import InvariantViolated
from catalog.kernel import Measurement, bucket_id, parse_measurement
from catalog.parts import (
    LAST_LIKELY_PART,
    LAST_PART,
    PIECE_PARTS,
    PREFIX_BYTES,
    TOGETHER,
    IdRange,
    Parts,
    Run,
    bucket_key,
    bucket_of,
    closed,
    join,
    may_be_part,
    part_document,
    segment_of,
)

START_MS = 1_700_000_040_000 - 1_700_000_040_000 % 60_000
FIRST, SECOND, THIRD = b"aa", b"ab", b"ac"
"""Segments."""
BUCKET_ID = bucket_id(START_MS, FIRST + b"cde\0\0\0")


def prefix(segment: bytes) -> bytes:
    """What the ids of the bucket's parts in this segment begin with."""
    return BUCKET_ID[:4] + segment + BUCKET_ID[6:PREFIX_BYTES]


def numbered(segment: bytes, counter: int) -> bytes:
    return prefix(segment) + counter.to_bytes(3, "big")


def measurement(second: int, **fields: object) -> Measurement:
    document = {"_id": ObjectId(), "t": DatetimeMS(START_MS + second * 1000), "m": {"b": 1, "a": 2}, **fields}
    return parse_measurement(encode(document), b"t", b"m")


ROWS = [
    measurement(0, v=1.5, s="x"),
    measurement(2, v=0.5),
    measurement(1, v=7.5, s="a", o={"x": [1, 2]}),
    measurement(3, **{"odd.name": 1}),
]


def part(parts: Parts, *rows: Measurement) -> bytes:
    return bucket_of(parts.next_id(prefix(FIRST)), b"t", b"m", rows[0].meta, START_MS, rows)


@pytest.mark.parametrize("seal", [False, True])
def test_join_equals_the_bucket_in_one_piece(seal: bool) -> None:
    whole = bucket_of(BUCKET_ID, b"t", b"m", ROWS[0].meta, START_MS, ROWS)
    parts = Parts(BUCKET_ID, 1, 0.0)
    stored = [part(parts, *ROWS[:1]), part(parts, *ROWS[1:3]), part(parts, *ROWS[3:])]
    if seal:
        stored = [closed(document) for document in stored]
    assert decode(join(stored, BUCKET_ID, b"t", b"m")) == decode(whole)


def test_closed_only_adds_the_mark() -> None:
    document = bucket_of(BUCKET_ID, b"t", b"m", ROWS[0].meta, START_MS, ROWS)
    before, after = decode(document), decode(closed(document))
    assert after["control"].pop("closed") is True
    assert after == before


def test_an_id_tells_its_segment_and_its_bucket() -> None:
    assert [segment_of(each) for each in (BUCKET_ID, numbered(SECOND, 7))] == [FIRST, SECOND]
    assert bucket_key(numbered(SECOND, 7)) == bucket_key(BUCKET_ID)
    another_place = BUCKET_ID[:8] + b"f" + BUCKET_ID[9:]
    another_start = b"\0" + BUCKET_ID[1:]
    assert len({bucket_key(each) for each in (BUCKET_ID, another_place, another_start)}) == 3


def test_counters_of_servers_are_hardly_those_of_parts() -> None:
    assert may_be_part(BUCKET_ID)
    assert may_be_part(numbered(SECOND, LAST_LIKELY_PART))
    assert not may_be_part(numbered(SECOND, LAST_LIKELY_PART + 1))


def test_ids_of_parts_lie_behind_the_bucket_and_share_its_prefix() -> None:
    parts = Parts(BUCKET_ID, 1, 0.0)
    ids = [parts.next_id(prefix(FIRST)) for _ in range(300)]
    assert ids == sorted(ids)
    assert ids[0] > BUCKET_ID
    assert {each[:PREFIX_BYTES] for each in ids} == {BUCKET_ID[:PREFIX_BYTES]}


def test_parts_are_counted_anew_in_each_segment() -> None:
    """So no id is given twice, and the parts of a bucket are in the order of their commits."""
    parts = Parts(BUCKET_ID, 1, 0.0)
    ids = [parts.next_id(prefix(segment)) for segment in (FIRST, FIRST, SECOND, SECOND, THIRD)]
    counted = ((FIRST, 1), (FIRST, 2), (SECOND, 0), (SECOND, 1), (THIRD, 0))
    assert ids == [numbered(segment, counter) for segment, counter in counted]


def test_a_bucket_has_room_for_so_many_parts_and_no_more() -> None:
    """In one segment; the next one has room again."""
    parts = Parts(numbered(FIRST, LAST_PART), 1, 0.0)
    with pytest.raises(InvariantViolated):
        parts.next_id(prefix(FIRST))
    assert parts.next_id(prefix(SECOND)) == numbered(SECOND, 0)


def stored(parts: Parts, count: int, segment: bytes = FIRST, rows: int = 1) -> None:
    """So many more parts."""
    for _ in range(count):
        parts.committed(parts.next_id(prefix(segment)), rows, 0.0)


def test_counts_follow_commits_and_joins() -> None:
    parts = Parts(BUCKET_ID, 1, 0.0)
    assert (parts.last_id, parts.fresh) == (BUCKET_ID, 0)
    last = BUCKET_ID
    for second in range(5):
        last = parts.next_id(prefix(FIRST))
        parts.committed(last, 2, float(second))
    assert (parts.stored, parts.last_id, parts.touched_seconds) == (6, last, 4.0)
    assert parts.fresh == 5
    pending = parts.pending(everything=True)
    assert (pending.last_id, pending.documents, pending.parts, pending.rows) == (last, 6, 5, 11)
    parts.joined(pending)
    assert (parts.stored, parts.fresh, parts.last_id, parts.runs) == (1, 0, last, [Run(last, 11)])


def test_parts_of_each_segment_are_one_range_in_the_order_of_the_rows() -> None:
    parts = Parts(BUCKET_ID, 3, 0.0)
    stored(parts, 2)
    stored(parts, 3, SECOND)
    stored(parts, 1, THIRD)
    assert parts.pending(everything=True).ranges == [
        IdRange(BUCKET_ID, BUCKET_ID, 1),
        IdRange(numbered(FIRST, 1), numbered(FIRST, 2), 2),
        IdRange(numbered(SECOND, 0), numbered(SECOND, 2), 3),
        IdRange(numbered(THIRD, 0), numbered(THIRD, 0), 1),
    ]
    assert parts.prefixes == [prefix(segment) for segment in (FIRST, SECOND, THIRD)]
    parts.joined(parts.pending(everything=True))
    assert (parts.prefixes, parts.last_id) == ([prefix(THIRD)], numbered(THIRD, 0))


def test_parts_of_the_current_segment_stay_when_those_of_others_are_joined() -> None:
    """More of them will come, so they are joined together later."""
    parts = Parts(BUCKET_ID, 100, 0.0)
    assert not parts.has_of_other_segments(FIRST)
    stored(parts, 4)
    assert not parts.has_of_other_segments(FIRST)
    assert parts.pending(everything=False, without=FIRST).documents == 0
    stored(parts, 2, SECOND, rows=5)
    assert parts.has_of_other_segments(SECOND)
    pending = parts.pending(everything=False, without=SECOND)
    assert (pending.last_id, pending.documents, pending.parts, pending.rows) == (numbered(FIRST, 4), 4, 4, 4)
    assert parts.pending(everything=False).documents == 6
    assert parts.pending(everything=True, without=SECOND).documents == 7
    parts.joined(pending)
    assert (parts.runs, parts.stored, parts.fresh) == (
        [Run(BUCKET_ID, 100), Run(numbered(FIRST, 4), 4, is_closed=True)],
        4,
        2,
    )
    assert parts.last_id == numbered(SECOND, 1)
    assert not parts.has_of_other_segments(SECOND)
    assert parts.has_of_other_segments(THIRD)


def test_parts_that_come_during_a_join_are_not_taken_for_joined() -> None:
    """Of the same segment, as of the next one."""
    parts = Parts(BUCKET_ID, 100, 0.0)
    stored(parts, 4)
    pending = parts.pending(everything=False)
    stored(parts, 2, rows=3)
    stored(parts, 1, SECOND)
    assert (pending.documents, pending.rows, pending.last_id) == (4, 4, numbered(FIRST, 4))
    parts.joined(pending)
    assert (parts.runs, parts.stored, parts.fresh) == (
        [Run(BUCKET_ID, 100), Run(numbered(FIRST, 4), 4, is_closed=True)],
        5,
        3,
    )
    rest = parts.pending(everything=True)
    assert rest.ranges[2:] == [
        IdRange(numbered(FIRST, 5), numbered(FIRST, 6), 2),
        IdRange(numbered(SECOND, 0), numbered(SECOND, 0), 1),
    ]
    assert (rest.rows, rest.unsealed) == (111, [BUCKET_ID])


def test_of_very_many_parts_the_first_ones_become_a_run_where_a_join_has_to_be_short() -> None:
    """Also when the bucket takes no more rows: the last join then finds few documents."""
    parts = Parts(BUCKET_ID, 100, 0.0)
    stored(parts, 2 * PIECE_PARTS + 5)
    first, last = numbered(FIRST, PIECE_PARTS), numbered(FIRST, 2 * PIECE_PARTS + 5)
    pending = parts.pending(everything=True, most_parts=PIECE_PARTS + 5)
    assert (pending.parts, pending.last_id, pending.is_last) == (PIECE_PARTS, first, False)
    parts.joined(pending)
    pending = parts.pending(everything=True, most_parts=PIECE_PARTS + 5)
    assert (pending.parts, pending.last_id, pending.is_last) == (PIECE_PARTS + 5, last, True)
    parts.joined(pending)
    assert parts.runs == [Run(last, 100 + 2 * PIECE_PARTS + 5)]
    assert (parts.stored, parts.fresh) == (1, 0)


def test_pieces_of_one_segment_are_one_range() -> None:
    parts = Parts(BUCKET_ID, 1, 0.0)
    stored(parts, 3 * PIECE_PARTS)
    stored(parts, PIECE_PARTS + 1, SECOND)
    ranges = parts.pending(everything=True).ranges
    assert [each.documents for each in ranges] == [1, 3 * PIECE_PARTS, PIECE_PARTS + 1]
    assert ranges[1] == IdRange(numbered(FIRST, 1), numbered(FIRST, 3 * PIECE_PARTS), 3 * PIECE_PARTS)


def rewritten_and_most(sizes: Iterable[int]) -> tuple[float, int]:
    """How often each row is rewritten, and how many documents a bucket with so many parts in its segments has."""
    parts, total, rewritten, most = Parts(BUCKET_ID, 1, 0.0), 1, 0, 0
    for number, count in enumerate(sizes):
        stored(parts, count, number.to_bytes(2, "big"))
        total += count
        pending = parts.pending(everything=False)
        if pending.documents > 1:
            rewritten += pending.rows
        parts.joined(pending)
        most = max(most, parts.stored)
        assert sum(run.rows for run in parts.runs) == total
        assert parts.fresh == 0
    last = parts.pending(everything=True)
    assert (last.documents, last.rows, last.runs) == (parts.stored, total, 0)
    assert [each.first_id for each in last.ranges] == [run.stored_id for run in parts.runs]
    return rewritten / total, most


SIZES = {
    "one part each time": [1] * 999,
    "a few": [3] * 333,
    "many": [50] * 20,
    "fewer and fewer": [2**each for each in range(9, -1, -1)],
    "more and more": [2**each for each in range(10)],
    "at random": random.Random(4).choices([1, 1, 1, 2, 3, 5, 8, 30], k=200),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_some_runs_of_about_the_same_size_become_one(sizes: list[int]) -> None:
    """So the rows of a bucket are rewritten a few times only, and readers meet few documents."""
    rewritten, most = rewritten_and_most(sizes)
    assert rewritten < 7
    assert most < 15


def segment(number: int) -> bytes:
    return b"b%c" % number


def test_runs_become_one_when_there_are_enough_of_the_same_size() -> None:
    """A larger one before them stays: rewriting it would cost more than they do."""
    parts = Parts(BUCKET_ID, 100, 0.0)
    runs = [Run(BUCKET_ID, 100)]
    for number in range(TOGETHER - 1):
        stored(parts, 4, segment(number))
        pending = parts.pending(everything=False)
        assert (pending.documents, pending.rows, pending.runs, pending.unsealed) == (4, 4, len(runs), [])
        parts.joined(pending)
        runs.append(Run(prefix(segment(number)) + b"\0\0\3", 4, is_closed=True))
        assert parts.runs == runs
    stored(parts, 3, segment(TOGETHER))
    pending = parts.pending(everything=False)
    small = [run.stored_id for run in runs[1:]]
    assert (pending.documents, pending.rows, pending.runs) == (3 + len(small), 3 + 4 * len(small), 1)
    assert (pending.unsealed, [each.first_id for each in pending.ranges[:-1]]) == ([], small)
    assert parts.pending(everything=True).unsealed == [BUCKET_ID], "runs are closed until the last join"


def test_a_part_that_is_alone_in_its_segment_is_a_run_until_there_are_enough() -> None:
    """It is closed already, where parts are."""
    parts = Parts(BUCKET_ID, 100, 0.0)
    joined = []
    for number in range(TOGETHER):
        stored(parts, 1, segment(number))
        pending = parts.pending(everything=False)
        joined.append((pending.documents, pending.parts, list(pending.unsealed)))
        parts.joined(pending)
    assert joined == [(1, 1, [])] * (TOGETHER - 1) + [(TOGETHER, 1, [])]
    assert parts.runs == [Run(BUCKET_ID, 100), Run(prefix(segment(TOGETHER - 1)) + bytes(3), TOGETHER, is_closed=True)]


def test_what_the_last_join_has_made_is_open() -> None:
    """Others may have appended to it when it is joined with what comes later."""
    parts = Parts(BUCKET_ID, 100, 0.0)
    stored(parts, 2, segment(0))
    pending = parts.pending(everything=True)
    assert pending.is_last
    parts.joined(pending)
    stored(parts, 2, segment(1))
    assert parts.pending(everything=True).unsealed == [parts.runs[0].stored_id]


@pytest.mark.parametrize("together", [2, 3, 8])
def test_a_process_chooses_how_many_runs_become_one(together: int) -> None:
    parts = Parts(BUCKET_ID, 100, 0.0)
    joined = []
    for number in range(together):
        stored(parts, 1, segment(number))
        pending = parts.pending(everything=False, together=together)
        joined.append(pending.documents)
        parts.joined(pending)
    assert joined == [1] * (together - 1) + [together]


def test_a_success_begins_the_tries_anew() -> None:
    parts = Parts(BUCKET_ID, 1, 0.0)
    stored(parts, 4)
    parts.attempts = 3
    parts.joined(parts.pending(everything=True))
    assert parts.attempts == 0


def test_parts_of_different_series_are_not_joined() -> None:
    other = parse_measurement(encode({"t": DatetimeMS(START_MS), "m": 2}), b"t", b"m")
    parts = Parts(BUCKET_ID, 1, 0.0)
    with pytest.raises(ValueError, match="different buckets"):
        join([part(parts, ROWS[0]), part(parts, other)], BUCKET_ID, b"t", b"m")


def test_only_version_one_without_holes_is_joined() -> None:
    document = decode(bucket_of(BUCKET_ID, b"t", b"m", ROWS[0].meta, START_MS, ROWS))
    for control, data in (
        ({**document["control"], "version": 2}, document["data"]),
        (document["control"], {**document["data"], "t": {"0": DatetimeMS(START_MS), "2": DatetimeMS(START_MS)}}),
    ):
        with pytest.raises(ValueError, match=r"version 1|holes"):
            join([encode({**document, "control": control, "data": data})], BUCKET_ID, b"t", b"m")


@pytest.mark.parametrize("sealed", [False, True])
def test_a_part_of_one_row_is_the_bucket_of_that_row(sealed: bool) -> None:
    for row in ROWS:
        whole = bucket_of(BUCKET_ID, b"t", b"m", row.meta, START_MS, [row])
        part = part_document(BUCKET_ID, b"t", b"m", row.meta, START_MS, [row], sealed=sealed)
        assert part == (closed(whole) if sealed else whole)
