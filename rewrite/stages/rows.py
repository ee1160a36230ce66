"""The number of measurements in a bucket, as an expression that does not unpack it (W3, W6)."""

from __future__ import annotations

from typing import Any

from rewrite.stages.draft import Stage
from rewrite.stages.scope import Scope

UNKNOWN_COUNT: Stage = {"control.version": {"$ne": 1}, "control.count": {"$exists": False}}
"""Matches compressed buckets without ``control.count``, which have to be unpacked."""

_DOCUMENT_BYTES = 5
_DIGITS = (1, 2, 3)
"""Of the keys of a bucket's rows: a server stores up to 1,000 in one. More would make short queries longer to plan."""
_ROW_BYTES = 10
"""Size of a row's type, date and the zero byte after the key, without the digits of the key."""


def rows_in_bucket(scope: Scope) -> dict[str, Any]:
    """The number of rows in a bucket that ``UNKNOWN_COUNT`` does not match.

    An uncompressed time column is a document ``{"0": date, "1": date, …}``, so its number of rows follows from its
    size. If the size does not fit up to 1,000 rows that are numbered without gaps, the server counts them.
    """
    column = f"$data.{scope.time_field}"
    counted = {"$size": {"$objectToArray": column}}
    by_size = {
        "$let": {
            "vars": {"n": _rows_by_size({"$bsonSize": column})},
            "in": {"$cond": [{"$eq": ["$$n", {"$trunc": "$$n"}]}, {"$toInt": "$$n"}, counted]},
        }
    }
    return {"$cond": [{"$eq": ["$control.version", 1]}, by_size, "$control.count"]}


def _rows_by_size(size_bytes: Any) -> dict[str, Any]:
    branches = []
    size_before, rows_before = _DOCUMENT_BYTES, 0
    for digits in _DIGITS:
        row_bytes = _ROW_BYTES + digits
        rows_until = 10**digits
        size_until = size_before + (rows_until - rows_before) * row_bytes
        rows = {"$add": [rows_before, {"$divide": [{"$subtract": ["$$s", size_before]}, row_bytes]}]}
        branches.append({"case": {"$lte": ["$$s", size_until]}, "then": rows})
        size_before, rows_before = size_until, rows_until
    return {"$let": {"vars": {"s": size_bytes}, "in": {"$switch": {"branches": branches, "default": 0.5}}}}
