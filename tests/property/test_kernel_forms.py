"""The compiled and the interpreted form of the kernel are equal to the byte."""

from __future__ import annotations

import shutil
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import CommandError
from catalog.kernel.rollover import Limits
from tests.support.bucket_strategies import damaged, one_document, stored_buckets
from tests.support.kernels import COMPILED, FORMS, INTERPRETED
from tests.support.measurement_strategies import START_MS, series

LIMITS = st.sampled_from(
    [Limits(), Limits(max_count=3), Limits(max_size_bytes=150, min_count=0), Limits(max_size_bytes=150, min_count=4)]
)


def test_the_compiled_form_is_there_where_a_compiler_is() -> None:
    """``make install`` builds it, unless there is no C compiler."""
    assert COMPILED is not None or not (shutil.which("cc") or shutil.which("gcc"))


def _parsed(form: Any, document: bytes, time_field: bytes = b"t", meta_field: bytes | None = b"m") -> Any:
    """A measurement's parts, or how it was refused."""
    try:
        measurement = form.parse_measurement(document, time_field, meta_field)
    except CommandError as error:
        return error.code, error.message
    return measurement


def _parts(measurement: Any) -> Any:
    if isinstance(measurement, tuple):
        return measurement
    columns = list(measurement.columns.items())
    return measurement.raw, measurement.time_ms, measurement.meta, measurement.payload_bytes, columns


def _figures(state: Any) -> Any:
    return (
        (state.bucket_id, state.meta, state.start_ms, state.span_ms),
        (state.rows, state.committed_rows, state.size_bytes, state.kept_open_for_large),
    )


def _both_new(measurement: Any, suffix: int, limits: Limits, meta_field: bytes | None) -> list[Any]:
    start_ms = INTERPRETED.rounded_start_ms(measurement.time_ms, 60)
    bucket_id = INTERPRETED.bucket_id(start_ms, suffix.to_bytes(8, "big"))
    return [
        form.BucketState(bucket_id, b"t", meta_field, measurement.meta, start_ms, 3_600_000, limits) for form in FORMS
    ]


def _both_folded(states: list[Any], staged: list[list[Any]]) -> None:
    """Rows that leave in a document of their own; what follows shows that the summaries know them."""
    for state, batch in zip(states, staged, strict=True):
        state.fold(batch)
        state.committed(len(batch))
    assert _figures(states[0]) == _figures(states[1])


def _both_prepared(states: list[Any], staged: list[list[Any]]) -> bytes:
    one, other = (state.prepare(batch) for state, batch in zip(states, staged, strict=True))
    assert one == other
    for state, batch in zip(states, staged, strict=True):
        state.committed(len(batch))
    return bytes(one)


@given(
    commands=series(),
    limits=LIMITS,
    meta_field=st.sampled_from([b"m", None]),
    reopen=st.booleans(),
    folded=st.sets(st.integers(1, 8)),
)
def test_both_forms_build_the_same_buckets(
    commands: list[list[bytes]], limits: Limits, meta_field: bytes | None, reopen: bool, folded: set[int]
) -> None:
    """Parsing, staging, bucket documents and updates, and reopening what was written."""
    open_states: dict[bytes, list[Any]] = {}
    for number, documents in enumerate(commands):
        batches: list[tuple[list[Any], list[list[Any]]]] = []
        for index, document in enumerate(documents):
            pair = [_parsed(form, document, meta_field=meta_field) for form in FORMS]
            assert _parts(pair[0]) == _parts(pair[1])
            meta = pair[0].meta
            states = open_states.get(meta)
            if states is not None:
                reasons = [state.try_stage(measurement) for state, measurement in zip(states, pair, strict=True)]
                assert reasons[0] == reasons[1]
            if states is None or reasons[0]:
                states = open_states[meta] = _both_new(pair[0], number * 1000 + index, limits, meta_field)
                assert [s.try_stage(m) for s, m in zip(states, pair, strict=True)] == [0, 0]
            assert _figures(states[0]) == _figures(states[1])
            batch = next((staged for known, staged in batches if known is states), None)
            if batch is None:
                batch = [[], []]
                batches.append((states, batch))
            for staged, measurement in zip(batch, pair, strict=True):
                staged.append(measurement)
        for states, staged in batches:
            fresh = states[0].committed_rows == 0
            if not fresh and number in folded:
                _both_folded(states, staged)
                continue
            encoded = _both_prepared(states, staged)
            if fresh and reopen:
                _reopened_alike(states, encoded, meta_field, limits, open_states)


def _reopened_alike(
    states: list[Any], document: bytes, meta_field: bytes | None, limits: Limits, open_states: dict[bytes, list[Any]]
) -> None:
    again = _adopted(document, meta_field, limits)
    if not isinstance(again, str) and states[0].rows == again[0].rows:
        for meta, known in open_states.items():
            if known is states and states[0].meta != b"\x06":
                open_states[meta] = again


def _adopted(document: bytes, meta_field: bytes | None, limits: Limits) -> Any:
    """Both states from one stored bucket, or why it is refused."""
    outcomes: list[Any] = []
    for form in FORMS:
        try:
            outcomes.append(form.BucketState.from_document(document, b"t", meta_field, 3_600_000, limits))
        except ValueError as error:
            outcomes.append(str(error))
    refused = [outcome for outcome in outcomes if isinstance(outcome, str)]
    if refused:
        assert outcomes[0] == outcomes[1]
        return refused[0]
    assert _figures(outcomes[0]) == _figures(outcomes[1])
    return outcomes


@given(document=st.one_of(damaged(one_document), st.binary(max_size=60), one_document))
def test_damaged_measurements_are_refused_alike(document: bytes) -> None:
    """The same error, or the same measurement; what is accepted goes through a whole bucket."""
    pair = [_parsed(form, document) for form in FORMS]
    assert _parts(pair[0]) == _parts(pair[1])
    if isinstance(pair[0], tuple):
        return
    states = _both_new(pair[0], 1, Limits(), b"m")
    for _ in range(2):
        assert [state.try_stage(measurement) for state, measurement in zip(states, pair, strict=True)] == [0, 0]
        _both_prepared(states, [[pair[0]], [pair[1]]])


@given(document=st.one_of(damaged(stored_buckets()), stored_buckets()), more=one_document)
def test_damaged_buckets_are_adopted_alike(document: bytes, more: bytes) -> None:
    """W50: the same refusal, or states that go on alike."""
    states = _adopted(document, b"m", Limits())
    if isinstance(states, str):
        return
    pair = [_parsed(form, more) for form in FORMS]
    reasons = [state.try_stage(measurement) for state, measurement in zip(states, pair, strict=True)]
    assert reasons[0] == reasons[1]
    if not reasons[0]:
        _both_prepared(states, [[pair[0]], [pair[1]]])


@pytest.mark.parametrize("rows", [1, 2, 30, 200, 900])
@pytest.mark.parametrize("fields", [1, 9, 40])
def test_many_rows_and_columns_are_written_alike(rows: int, fields: int) -> None:
    """Batches beyond every inline buffer, in both forms of an update."""
    documents = [
        bson.encode(
            {"t": bson.DatetimeMS(START_MS + row), **{f"f{i}": row * i for i in range(fields) if (row + i) % 3}}
        )
        for row in range(2 * rows)
    ]
    pairs = [[form.parse_measurement(document, b"t", None) for form in FORMS] for document in documents]
    states = _both_new(pairs[0][0], 1, Limits(max_count=10_000, max_size_bytes=10**8), None)
    for pair in pairs:
        assert [state.try_stage(measurement) for state, measurement in zip(states, pair, strict=True)] == [0, 0]
    for batch in (pairs[:rows], pairs[rows:]):
        _both_prepared(states, [[pair[0] for pair in batch], [pair[1] for pair in batch]])
