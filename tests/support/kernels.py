"""Both forms of the kernel, to hold them against each other and against a server."""

from __future__ import annotations

import importlib
from types import ModuleType, SimpleNamespace
from typing import Any

from catalog import bucket, documents, measurement, rollover


def _form(states: Any, reading: Any, parsing: Any) -> Any:
    return SimpleNamespace(
        BucketState=states.BucketState,
        Limits=rollover.Limits,
        RolloverReason=rollover.RolloverReason,
        applied_rows=reading.applied_rows,
        bucket_id=rollover.bucket_id,
        parse_measurement=parsing.parse_measurement,
        rounded_start_ms=rollover.rounded_start_ms,
        row_ids=reading.row_ids,
    )


def _compiled() -> ModuleType | None:
    try:
        return importlib.import_module("catalog._kernel")
    except ImportError:
        return None


INTERPRETED = _form(bucket, documents, measurement)
_module = _compiled()
COMPILED = _form(_module, _module, _module) if _module is not None else None
KERNELS: dict[str, Any] = {"interpreted": INTERPRETED} | ({"compiled": COMPILED} if COMPILED is not None else {})
"""Name → kernel; the compiled form is there when it was built, as ``make install`` does where it can."""
