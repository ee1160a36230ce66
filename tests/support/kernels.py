"""Both forms of the kernel, to hold them against each other and against a server."""

from __future__ import annotations

import importlib
from types import ModuleType, SimpleNamespace
from typing import Any

from bson import DatetimeMS, decode, encode

from catalog.bson.codec import CODEC
from catalog.kernel import (
    bucket,
    comparing,
    compression,
    decoding,
    documents,
    headers,
    measurement,
    merging,
    rollover,
    time_range,
)


def _form(
    states: Any, parsing: Any, parts: Any, compression: Any, decoding: Any, comparing: Any, headers: Any, times: Any
) -> Any:
    return SimpleNamespace(
        BucketState=states.BucketState,
        Limits=rollover.Limits,
        RolloverReason=rollover.RolloverReason,
        applied_rows=documents.applied_rows,
        bucket_id=rollover.bucket_id,
        column_cells=decoding.column_cells,
        compressed=compression.compressed,
        count_plain_times=times.count_plain_times,
        has_true_header=headers.has_true_header,
        holds_parts=comparing.holds_parts,
        holds_rows=comparing.holds_rows,
        join_documents=parts.join_documents,
        one_row_part=parts.one_row_part,
        parse_measurement=parsing.parse_measurement,
        rounded_start_ms=rollover.rounded_start_ms,
        same_rows=comparing.same_rows,
    )


def _compiled() -> ModuleType | None:
    try:
        return importlib.import_module("catalog.kernel._kernel")
    except ImportError:
        return None


INTERPRETED = _form(bucket, measurement, merging, compression, decoding, comparing, headers, time_range)
_module = _compiled()
COMPILED = _form(*[_module] * 8) if _module is not None else None
KERNELS: dict[str, Any] = {"interpreted": INTERPRETED} | ({"compiled": COMPILED} if COMPILED is not None else {})
"""Name → kernel; the compiled form is there when it was built, as ``make install`` does where it can."""


def measure(kernel: Any, document: dict[str, Any], time_field: bytes = b"t", meta_field: bytes | None = b"m") -> Any:
    """A parsed measurement; ``t`` may be given in milliseconds."""
    name = time_field.decode()
    time = document.get(name)
    content = {**document, name: DatetimeMS(time)} if type(time) is int else document
    return kernel.parse_measurement(encode(content), time_field, meta_field)


def bucket_for(
    kernel: Any, measurement: Any, *, time_field: bytes = b"t", span_ms: int = 3_600_000, **limits: int
) -> Any:
    """An empty bucket that starts with this measurement; limits are those of 6.0.5 unless given."""
    start_ms = kernel.rounded_start_ms(measurement.time_ms, 60)
    return kernel.BucketState(
        kernel.bucket_id(start_ms, b"\1\2\3\4\5\6\7\x08"),
        time_field,
        b"m",
        measurement.meta,
        start_ms,
        span_ms,
        kernel.Limits(**{"min_count": 0, **limits}),
    )


def written(state: Any, *measurements: Any) -> dict[str, Any]:
    """Stages, prepares and commits one batch; the decoded document or statement."""
    assert [state.try_stage(measurement) for measurement in measurements] == [0] * len(measurements)
    encoded = state.prepare(measurements)
    state.committed(len(measurements))
    return decode(encoded, CODEC)


FORMS = [INTERPRETED, COMPILED] if COMPILED is not None else [INTERPRETED, INTERPRETED]
