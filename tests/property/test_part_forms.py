"""Parts of buckets: both forms are equal to the byte, and a join equals the bucket written in one piece."""

from __future__ import annotations

from typing import Any

from bson import DatetimeMS, encode
from hypothesis import given
from hypothesis import strategies as st

from catalog.kernel.merging import closed
from catalog.kernel.rollover import Limits
from tests.support.bucket_strategies import damaged, one_document, stored_buckets
from tests.support.kernels import FORMS, INTERPRETED
from tests.support.measurement_strategies import START_MS, series

PART_ID = bytes(range(12))


def _state(measurement: Any) -> Any:
    limits = Limits(max_count=1 << 30, max_size_bytes=1 << 30, min_count=0)
    return INTERPRETED.BucketState(PART_ID, b"t", b"m", measurement.meta, START_MS - 60_000, 1 << 40, limits)


def _written(measurements: list[Any]) -> bytes:
    state = _state(measurements[0])
    assert [state.try_stage(measurement) for measurement in measurements] == [0] * len(measurements)
    return bytes(state.prepare(measurements))


@st.composite
def parts_and_whole(draw: st.DrawFn) -> tuple[list[bytes], bytes, int]:
    documents = [document for command in draw(series()) for document in command]
    measurements = [INTERPRETED.parse_measurement(document, b"t", b"m") for document in documents]
    state = _state(measurements[0])
    rows = [m for m in measurements if m.meta == measurements[0].meta and not state.try_stage(m)]
    parts: list[bytes] = []
    at = 0
    while at < len(rows):
        size = draw(st.sampled_from([1, 1, 1, 2, 3]))
        part = _written(rows[at : at + size])
        parts.append(closed(part) if draw(st.booleans()) else part)
        at += size
    return parts, bytes(state.prepare(rows)), len(rows)


def _outcomes(parts: list[bytes]) -> list[Any]:
    outcomes: list[Any] = []
    for form in FORMS:
        try:
            outcomes.append(form.join_documents(parts, PART_ID, b"t", b"m"))
        except ValueError:
            outcomes.append(None)
    assert outcomes[0] == outcomes[1]
    if outcomes[0] is not None:
        joined, held = outcomes[0][0], [form.holds_parts(outcomes[0][0], parts, b"t") for form in FORMS]
        assert held[0] == held[1]
        assert not any(form.holds_parts(joined, parts[1:], b"t") for form in FORMS)
    return outcomes


@given(case=parts_and_whole())
def test_a_join_is_the_bucket_written_in_one_piece(case: tuple[list[bytes], bytes, int]) -> None:
    """W3, W20-W27: to the byte, summaries and order of fields included."""
    parts, whole, rows = case
    assert _outcomes(parts)[0] == (whole, rows)
    assert all(form.holds_parts(whole, parts, b"t") for form in FORMS)


@given(parts=st.lists(st.one_of(damaged(stored_buckets()), stored_buckets()), min_size=1, max_size=3))
def test_damaged_parts_are_refused_alike(parts: list[bytes]) -> None:
    _outcomes(parts)


@given(case=parts_and_whole(), data=st.data())
def test_damage_to_one_of_many_is_refused_alike(case: tuple[list[bytes], bytes, int], data: st.DataObject) -> None:
    parts = list(case[0])
    at = data.draw(st.integers(0, len(parts) - 1))
    parts[at] = data.draw(damaged(st.just(parts[at])))
    _outcomes(parts)


@given(document=one_document, sealed=st.booleans())
def test_parts_of_one_row_are_written_alike(document: bytes, sealed: bool) -> None:
    start_ms = START_MS - 60_000
    written = [
        form.one_row_part(PART_ID, b"t", start_ms, form.parse_measurement(document, b"t", b"m"), sealed)
        for form in FORMS
    ]
    whole = _written([INTERPRETED.parse_measurement(document, b"t", b"m")])
    assert written == [closed(whole) if sealed else whole] * 2


def test_parts_with_many_columns_are_joined_alike() -> None:
    """Beyond every inline buffer."""
    documents = [
        encode({"t": DatetimeMS(START_MS + row), **{f"f{i}": row * i for i in range(row, row + 60)}})
        for row in range(90)
    ]
    parts = [_written([INTERPRETED.parse_measurement(document, b"t", b"m")]) for document in documents]
    whole = _written([INTERPRETED.parse_measurement(document, b"t", b"m") for document in documents])
    assert _outcomes(parts)[0] == (whole, 90)
