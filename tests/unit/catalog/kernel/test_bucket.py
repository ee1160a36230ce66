"""One open bucket: what it takes, and the order in which it says why not. The figures are those of 6.0.5."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Binary, Decimal128, Int64, ObjectId, Timestamp

from catalog.errors import InvariantViolated
from catalog.kernel.rollover import RolloverReason
from tests.support.kernels import KERNELS, bucket_for, measure, written

pytestmark = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
HOUR_MS = 3_600_000


def test_rows_are_numbered_over_batches_in_commit_order(kernel: Any) -> None:
    """W3, W64: numbers are given when a batch is prepared, and there are no holes."""
    measurements = [measure(kernel, {"t": time_ms, "v": time_ms}) for time_ms in (5, 3, 4, 1)]
    state = bucket_for(kernel, measurements[0])
    for measurement in measurements:
        assert state.try_stage(measurement) == 0
    assert (state.rows, state.committed_rows) == (4, 0)
    document = written_only(state, measurements[2:3])
    assert list(document["data"]["v"].items()) == [("0", 4)]
    update = written_only(state, measurements[:2])["u"]["$set"]
    assert {name: value for name, value in update.items() if ".v." in name} == {"data.v.1": 5, "data.v.2": 3}
    assert "data.t.3" in written_only(state, measurements[3:])["u"]["$set"]
    assert (state.rows, state.committed_rows) == (4, 4)


def test_w51_a_cap_is_a_smaller_size_limit_also_for_large_measurements(kernel: Any) -> None:
    """W51: W45 does not apply, as seen on 7.0.28; an empty bucket takes anything."""
    large = measure(kernel, {"t": 0, "v": "x" * 6000})
    state = bucket_for(kernel, large)
    assert state.cap_bytes == 0
    state.cap_bytes = 7000
    assert state.try_stage(large) == 0
    assert state.try_stage(large) == RolloverReason.CACHE_PRESSURE
    assert state.rows == 1
    state.cap_bytes = state.size_bytes + 6100
    assert state.try_stage(large) == 0
    assert state.try_stage(large) == RolloverReason.CACHE_PRESSURE
    state.cap_bytes = 0
    assert state.try_stage(large) == 0
    assert not state.kept_open_for_large


def written_only(state: Any, measurements: list[Any]) -> dict[str, Any]:
    """Prepares and commits what is staged already."""
    from catalog.bson.codec import CODEC

    encoded = state.prepare(measurements)
    state.committed(len(measurements))
    return bson.decode(encoded, CODEC)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (1, "x"),
        (True, 1),
        (None, 1),
        (1, None),
        (Timestamp(1, 1), 1),
        (ObjectId(), "x"),
        ({}, []),
        ({}, 5),
        ([], 5),
        ({"a": 1}, {"a": "x"}),
        ([1, 2], [1, "x"]),
        ([{"a": 1}], [{"a": None}]),
        ({"a": {"b": {}}}, {"a": {"b": 1}}),
    ],
)
def test_incompatible_types_do_not_share_a_bucket(kernel: Any, first: Any, then: Any) -> None:
    """W47."""
    state = bucket_for(kernel, measure(kernel, {"t": 0, "f": first}))
    assert state.try_stage(measure(kernel, {"t": 0, "f": first})) == 0
    assert state.try_stage(measure(kernel, {"t": 0, "f": then})) == RolloverReason.SCHEMA_CHANGE
    assert (state.rows, state.size_bytes > 0) == (1, True)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (1, 1.5),
        (Int64(1), Decimal128("2")),
        ({}, {"a": 1}),
        ({"a": 1}, {"b": "x"}),
        ([], [1]),
        ([1, 2], [3]),
        (Binary(b"", 0), Binary(b"", 5)),
        ("x", "absent"),
    ],
)
def test_compatible_types_share_a_bucket(kernel: Any, first: Any, then: Any) -> None:
    """W47."""
    state = bucket_for(kernel, measure(kernel, {"t": 0, "f": first}))
    for value in (first, then, first):
        assert state.try_stage(measure(kernel, {"t": 0} if value == "absent" else {"t": 0, "f": value})) == 0


def test_the_schema_grows_with_what_is_staged(kernel: Any) -> None:
    """W47: paths count from staging on, not from the commit; a refused measurement leaves none."""
    state = bucket_for(kernel, measure(kernel, {"t": 0}))
    assert state.try_stage(measure(kernel, {"t": 0, "o": {"a": 1}})) == 0
    assert state.try_stage(measure(kernel, {"t": HOUR_MS, "o": {"b": 1}})) == RolloverReason.TIME_FORWARD
    assert state.try_stage(measure(kernel, {"t": 0, "o": {"b": "text"}})) == 0
    assert state.try_stage(measure(kernel, {"t": 0, "o": {"b": 1}})) == RolloverReason.SCHEMA_CHANGE


@pytest.mark.parametrize(("one_by_one", "rows"), [(True, 245), (False, 233)])
def test_size_counts_names_of_columns_that_are_not_yet_stored(kernel: Any, one_by_one: bool, rows: int) -> None:
    """W46: in one insert every row pays for the names, so fewer fit than with single inserts."""
    measurement = measure(kernel, {"t": 0, "v": "x" * 500})
    state = bucket_for(kernel, measurement)
    staged = 0
    while not (reason := state.try_stage(measurement)):
        staged += 1
        if one_by_one:
            state.prepare([measurement])
            state.committed(1)
    assert reason == RolloverReason.SIZE
    assert staged == rows


def test_size_of_the_first_rows(kernel: Any) -> None:
    """W46: payload, type byte, digits of the row and a NUL, and 12 and the name for a new column; no meta."""
    measurement = measure(kernel, {"t": 0, "m": "x" * 99, "value": 1})
    state = bucket_for(kernel, measurement)
    written(state, measurement)
    assert state.size_bytes == (8 + 2) + (4 + 2) + (12 + 1) + (12 + 5)
    before = state.size_bytes
    written(state, measurement)
    assert state.size_bytes - before == (8 + 1 + 1 + 1) + (4 + 1 + 1 + 1)


@pytest.mark.parametrize(("bytes_more", "reason"), [(0, 0), (1, RolloverReason.SIZE)])
def test_a_bucket_may_be_just_full(kernel: Any, bytes_more: int, reason: int) -> None:
    """W42: exactly the limit stays."""
    first = measure(kernel, {"t": 0, "v": ""})
    state = bucket_for(kernel, first)
    written(state, first)
    per_row = (8 + 3) + (5 + 3)
    text = "x" * (128_000 - state.size_bytes - per_row + bytes_more)
    assert state.try_stage(measure(kernel, {"t": 0, "v": text})) == reason


def test_a_single_measurement_may_exceed_the_limit(kernel: Any) -> None:
    """W42, and W45 without the exception for large measurements: the next one opens a bucket of its own."""
    large = measure(kernel, {"t": 0, "v": "x" * 200_000})
    state = bucket_for(kernel, large)
    assert state.try_stage(large) == 0
    assert state.try_stage(measure(kernel, {"t": 0, "v": ""})) == RolloverReason.SIZE
    assert not state.kept_open_for_large


def test_large_measurements_share_a_bucket_up_to_ten(kernel: Any) -> None:
    """W45."""
    large = measure(kernel, {"t": 0, "v": "x" * 200_000})
    state = bucket_for(kernel, large, min_count=10)
    assert state.try_stage(large) == 0
    assert not state.kept_open_for_large
    assert [state.try_stage(large) for _ in range(10)] == [0] * 9 + [RolloverReason.SIZE]
    assert state.kept_open_for_large


@pytest.mark.parametrize("name", ["same", "other"])
def test_large_measurements_never_outgrow_a_document(kernel: Any, name: str) -> None:
    """W45, W98: up to 12 MiB of data, as long as the summaries fit beside it."""
    state = None
    for row in range(10):
        field = "v" if name == "same" else f"v{row}"
        measurement = measure(kernel, {"t": 0, field: "x" * 1_300_000})
        state = state or bucket_for(kernel, measurement, min_count=10)
        if state.try_stage(measurement):
            break
        assert len(state.prepare([measurement])) < 16 * 1024 * 1024
        state.committed(1)
    assert state is not None
    assert state.rows == (8 if name == "same" else 4)


def test_count_closes(kernel: Any) -> None:
    """W41."""
    measurement = measure(kernel, {"t": 0})
    state = bucket_for(kernel, measurement, max_count=3)
    assert [state.try_stage(measurement) for _ in range(4)] == [0, 0, 0, RolloverReason.COUNT]


@pytest.mark.parametrize(
    ("offset_ms", "reason"),
    [(0, 0), (HOUR_MS - 1, 0), (HOUR_MS, RolloverReason.TIME_FORWARD), (-1, RolloverReason.TIME_BACKWARD)],
)
@pytest.mark.parametrize("start_ms", [0, 1_714_521_600_000, -6_000_000, 6_999_999_960_000])
def test_a_bucket_covers_its_span_from_the_rounded_start(
    kernel: Any, start_ms: int, offset_ms: int, reason: int
) -> None:
    """W31, W43, W44: from the start, which the first measurement need not have; before 1970 and after 2106 too."""
    first = measure(kernel, {"t": start_ms + 30_000})
    state = bucket_for(kernel, first)
    assert state.start_ms == start_ms
    assert state.try_stage(first) == 0
    assert state.try_stage(measure(kernel, {"t": start_ms + offset_ms})) == reason


def test_times_at_both_ends_of_the_calendar(kernel: Any) -> None:
    """Differences beyond 64 bits are forward or backward all the same."""
    least, greatest = measure(kernel, {"t": -(2**63)}), measure(kernel, {"t": 2**63 - 1})
    state = bucket_for(kernel, least)
    assert state.try_stage(least) == 0
    assert state.try_stage(greatest) == RolloverReason.TIME_FORWARD
    assert bucket_for(kernel, greatest).try_stage(least) == RolloverReason.TIME_BACKWARD


def test_reasons_are_judged_in_the_order_of_the_server(kernel: Any) -> None:
    """W40: schema, count, size, time forward, time backward."""
    first = measure(kernel, {"t": 60_000, "v": 1})
    state = bucket_for(kernel, first, max_count=1, max_size_bytes=40)
    assert state.try_stage(first) == 0
    for time_ms in (HOUR_MS * 2, 0):
        assert state.try_stage(measure(kernel, {"t": time_ms, "v": "x" * 50})) == RolloverReason.SCHEMA_CHANGE
        assert state.try_stage(measure(kernel, {"t": time_ms, "v": 2, "w": "x" * 50})) == RolloverReason.COUNT
    state = bucket_for(kernel, first, max_size_bytes=40)
    assert state.try_stage(first) == 0
    assert state.try_stage(measure(kernel, {"t": HOUR_MS * 2, "v": 2})) == RolloverReason.SIZE


def test_an_open_bucket_takes_a_new_span(kernel: Any) -> None:
    """W49: a coarser granularity applies at once."""
    state = bucket_for(kernel, measure(kernel, {"t": 0}))
    late = measure(kernel, {"t": 2 * HOUR_MS})
    assert state.try_stage(late) == RolloverReason.TIME_FORWARD
    state.span_ms = 24 * HOUR_MS
    assert state.try_stage(late) == 0


def test_what_was_not_staged_is_not_prepared(kernel: Any) -> None:
    state = bucket_for(kernel, measure(kernel, {"t": 0}))
    with pytest.raises(InvariantViolated):
        state.prepare([measure(kernel, {"t": 0})])
    with pytest.raises(InvariantViolated):
        state.prepare([])
    for nothing_staged in ([measure(kernel, {"t": 0})], []):
        with pytest.raises(InvariantViolated):
            state.fold(nothing_staged)
    with pytest.raises(InvariantViolated):
        state.committed(1)


def test_folded_rows_count_as_rows_and_in_the_summaries(kernel: Any) -> None:
    """Rows that left in a part are in no later update, but bounds and row numbers go on from them."""
    state = bucket_for(kernel, measure(kernel, {"t": 0}))
    written(state, measure(kernel, {"t": 0, "v": 5}))
    greatest, later = measure(kernel, {"t": 1, "v": 9}), measure(kernel, {"t": 1, "v": 7})
    assert (state.try_stage(greatest), state.try_stage(later)) == (0, 0)
    state.fold([greatest])
    state.committed(1)
    update = written_only(state, [later])["u"]["$set"]
    assert update.keys() == {"data.t.2", "data.v.2"}
    assert state.committed_rows == 3


def test_columns_are_counted_once_whoever_has_them(kernel: Any) -> None:
    """Those of a reopened bucket count as well."""
    state = bucket_for(kernel, measure(kernel, {"t": 0}))
    assert state.columns == 1
    document = written(state, measure(kernel, {"t": 0, "a": 1, "b": {"c": 1}}))
    written(state, measure(kernel, {"t": 0, "a": 1, "d": 1}))
    assert state.columns == 4
    again = kernel.BucketState.from_document(bson.encode(document), b"t", None, 3_600_000, kernel.Limits())
    assert again.columns == 3


def test_memory_grows_with_columns_and_long_summaries(kernel: Any) -> None:
    """An estimate, but one that sees what makes a bucket large."""
    small = bucket_for(kernel, measure(kernel, {"t": 0}))
    empty_bytes = small.memory_bytes()
    written(small, measure(kernel, {"t": 0, **{f"f{i}": i for i in range(10)}}))
    assert 300 < empty_bytes < 4_000
    assert 1_000 < small.memory_bytes() - empty_bytes < 12_000
    written(small, measure(kernel, {"t": 0, "text": "x" * 50_000}))
    assert small.memory_bytes() > 100_000
