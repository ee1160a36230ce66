"""The hot path of the catalog behind one narrow interface.

Everything that touches the bytes of measurements: validating and splitting a measurement, and the state of
one open bucket (columns, size, schema, control min/max) with the documents that are built from it. The
compiled form, where it was built, and the interpreted form are equal to the byte.
"""

from __future__ import annotations

from catalog.bucket import BucketState
from catalog.documents import applied_rows, row_ids
from catalog.measurement import Measurement, parse_measurement
from catalog.rollover import Limits, RolloverReason, bucket_id, rounded_start_ms

COMPILED = False

__all__ = [
    "COMPILED",
    "BucketState",
    "Limits",
    "Measurement",
    "RolloverReason",
    "applied_rows",
    "bucket_id",
    "parse_measurement",
    "rounded_start_ms",
    "row_ids",
]
