"""The hot path of the catalog, behind one narrow interface.

It handles the bytes of measurements: validating and splitting a measurement, and the state of one open bucket (columns,
size, schema, control min/max) with the documents that are built from it. The results of the compiled and the
interpreted form are identical to the byte. ``TSPROXY_KERNEL=python`` in the environment selects the interpreted one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from catalog.kernel.documents import applied_rows
from catalog.kernel.rollover import Limits, RolloverReason, bucket_id, rounded_start_ms

COMPILED = False
"""Whether the compiled form is in use."""

if TYPE_CHECKING or os.environ.get("TSPROXY_KERNEL") == "python":
    from catalog.kernel.bucket import BucketState
    from catalog.kernel.comparing import holds_parts, holds_rows, same_rows
    from catalog.kernel.compression import compressed
    from catalog.kernel.headers import has_true_header
    from catalog.kernel.measurement import Measurement, parse_measurement
    from catalog.kernel.merging import join_documents, one_row_part
    from catalog.kernel.time_range import count_plain_times
else:
    try:
        from catalog.kernel._kernel import (
            BucketState,
            Measurement,
            compressed,
            count_plain_times,
            has_true_header,
            holds_parts,
            holds_rows,
            join_documents,
            one_row_part,
            parse_measurement,
            same_rows,
        )

        COMPILED = True
    except ImportError:
        from catalog.kernel.bucket import BucketState
        from catalog.kernel.comparing import holds_parts, holds_rows, same_rows
        from catalog.kernel.compression import compressed
        from catalog.kernel.headers import has_true_header
        from catalog.kernel.measurement import Measurement, parse_measurement
        from catalog.kernel.merging import join_documents, one_row_part
        from catalog.kernel.time_range import count_plain_times

__all__ = [
    "COMPILED",
    "BucketState",
    "Limits",
    "Measurement",
    "RolloverReason",
    "applied_rows",
    "bucket_id",
    "compressed",
    "count_plain_times",
    "has_true_header",
    "holds_parts",
    "holds_rows",
    "join_documents",
    "one_row_part",
    "parse_measurement",
    "rounded_start_ms",
    "same_rows",
]
