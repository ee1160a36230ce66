"""Parts are valid buckets whose join is the bucket that would have been written in one piece."""

from __future__ import annotations

import pytest
from bson import DatetimeMS, ObjectId

from catalog.bson.codec import decode, encode
from catalog.errors import InvariantViolated
from catalog.kernel import Measurement, bucket_id, parse_measurement
from catalog.parts import LAST_PART, PREFIX_BYTES, Parts, Run, bucket_of, closed, join, part_document

START_MS = 1_700_000_040_000 - 1_700_000_040_000 % 60_000
BUCKET_ID = bucket_id(START_MS, b"abcde\0\0\0")


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
    return bucket_of(parts.next_id(), b"t", b"m", rows[0].meta, START_MS, rows)


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


def test_ids_of_parts_lie_behind_the_bucket_and_share_its_prefix() -> None:
    parts = Parts(BUCKET_ID, 1, 0.0)
    ids = [parts.next_id() for _ in range(300)]
    assert ids == sorted(ids)
    assert ids[0] > BUCKET_ID
    assert {each[:PREFIX_BYTES] for each in ids} == {BUCKET_ID[:PREFIX_BYTES]}


def test_a_bucket_has_room_for_so_many_parts_and_no_more() -> None:
    parts = Parts(BUCKET_ID[:PREFIX_BYTES] + LAST_PART.to_bytes(3, "big"), 1, 0.0)
    with pytest.raises(InvariantViolated):
        parts.next_id()


def test_counts_follow_commits_and_joins() -> None:
    parts = Parts(BUCKET_ID, 1, 0.0)
    last = BUCKET_ID
    for second in range(5):
        last = parts.next_id()
        parts.committed(last, float(second))
    assert (parts.stored, parts.last_id, parts.touched_seconds) == (6, last, 4.0)
    assert parts.fresh == 5
    parts.joined(parts.pending(6, everything=True))
    assert (parts.stored, parts.fresh, parts.runs) == (1, 0, [Run(last, 6)])


def stored(parts: Parts, count: int) -> None:
    for _ in range(count):
        parts.committed(parts.next_id(), 0.0)


def test_runs_become_one_with_those_before_them_that_have_no_more_rows() -> None:
    """So the rows of a bucket are rewritten a few times only, and readers meet few documents."""
    parts, total, rewritten, most = Parts(BUCKET_ID, 1, 0.0), 1, 0, 0
    for _ in range(64):
        stored(parts, 16)
        total += 16
        pending = parts.pending(total, everything=False)
        rewritten += pending.rows
        parts.joined(pending)
        most = max(most, parts.stored)
        assert sum(run.rows for run in parts.runs) == total
        assert parts.fresh == 0
    assert rewritten < 5 * total
    assert most <= 7
    last = parts.pending(total, everything=True)
    assert (last.first_id, last.documents, last.rows, last.runs) == (parts.runs[0].stored_id, parts.stored, total, 0)


def test_a_join_begins_behind_the_runs_that_stay() -> None:
    parts = Parts(BUCKET_ID, 100, 0.0)
    stored(parts, 4)
    pending = parts.pending(104, everything=False)
    assert (pending.documents, pending.rows, pending.runs, pending.unsealed) == (4, 4, 1, [])
    assert BUCKET_ID < pending.first_id <= parts.last_id
    stored(parts, 3)
    parts.joined(pending)
    assert parts.runs == [Run(BUCKET_ID, 100), Run(pending.last_id, 4)]
    assert (parts.stored, parts.fresh) == (5, 3)
    following = parts.pending(107, everything=False)
    assert (following.documents, following.unsealed) == (3, [])
    whole = parts.pending(107, everything=True)
    assert whole.unsealed == [BUCKET_ID, pending.last_id]


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
