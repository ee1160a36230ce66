"""Derives bounds on buckets from conditions on the time field: on ``control`` and on ``_id`` (Q11, Q12)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from rewrite.stages.scope import Scope

_MAX_ID_SECONDS = 2**32 - 1


def millis(value: Any) -> int | None:
    """Milliseconds since 1970 of a date, ``None`` for anything else."""
    match value:
        case DatetimeMS():
            return int(value)
        case datetime():
            return int(DatetimeMS(value))
        case _:
            return None


def _operators(operand: Any) -> Mapping[str, Any]:
    if isinstance(operand, dict):
        return operand
    return {"$eq": operand}


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval, in milliseconds since 1970, that contains the times of all matching measurements."""

    low_ms: int | None = None
    high_ms: int | None = None

    @classmethod
    def of(cls, operand: Any) -> Interval:
        """The interval that one operand on the time field allows; unrecognised operators are ignored."""
        interval = EVER
        for name, value in _operators(operand).items():
            time_ms = millis(value)
            match name:
                case "$gte" | "$gt" if time_ms is not None:
                    interval = interval.intersect(cls(low_ms=time_ms))
                case "$lte" | "$lt" if time_ms is not None:
                    interval = interval.intersect(cls(high_ms=time_ms))
                case "$eq" if time_ms is not None:
                    interval = interval.intersect(cls(time_ms, time_ms))
                case "$in" if isinstance(value, list) and value:
                    times = [millis(element) for element in value]
                    known = [element for element in times if element is not None]
                    if len(known) == len(times):
                        interval = interval.intersect(cls(min(known), max(known)))
        return interval

    def intersect(self, other: Interval) -> Interval:
        """The intersection of two intervals."""
        if other is EVER or self is EVER:
            return self if other is EVER else other
        lows = [low for low in (self.low_ms, other.low_ms) if low is not None]
        highs = [high for high in (self.high_ms, other.high_ms) if high is not None]
        return Interval(max(lows, default=None), min(highs, default=None))

    def outside_id_range(self, scope: Scope) -> bool:
        """Whether the backend's own bounds on ``_id`` would wrap (H2)."""
        low, high = self._seconds(scope)
        return (low is not None and not 0 <= low <= _MAX_ID_SECONDS) or (
            high is not None and not 0 <= high <= _MAX_ID_SECONDS
        )

    def id_predicate(self, scope: Scope) -> dict[str, Any] | None:
        """The range of bucket ids; ``None`` if there is no correct one.

        A range with both ends within the seconds that an ``_id`` can represent is always correct. A range with one end
        is correct only if no time outside 1970–2106 is stored.
        """
        low, high = self._seconds(scope)
        if (low is None and high is None) or self.outside_id_range(scope):
            return None
        if (low is None or high is None) and scope.extended_range:
            return None
        bounds = {}
        if low is not None:
            bounds["$gte"] = _object_id(low, b"\x00")
        if high is not None:
            bounds["$lte"] = _object_id(high, b"\xff")
        return {"_id": bounds}

    def _seconds(self, scope: Scope) -> tuple[int | None, int | None]:
        low = None if self.low_ms is None else self.low_ms // 1000 - scope.span_seconds
        high = None if self.high_ms is None else -(-self.high_ms // 1000)
        return low, high


EVER = Interval()
"""The interval without bounds."""


def _object_id(seconds: int, fill: bytes) -> ObjectId:
    return ObjectId(struct.pack(">I", seconds) + fill * 8)


def time_predicate(operand: Any, scope: Scope) -> dict[str, Any] | None:
    """The predicate on ``control`` (Q11); ``None`` if the operand has no recognised operator."""
    rows = []
    for name, value in _operators(operand).items():
        if name == "$in" and isinstance(value, list) and value and all(millis(v) is not None for v in value):
            rows.append({"$or": [_row("$eq", v, scope) for v in value]})
        elif millis(value) is not None and (row := _row(name, value, scope)) is not None:
            rows.append(row)
    if not rows:
        return None
    return rows[0] if len(rows) == 1 else {"$and": rows}


_LIMIT_MS = 2**63 - 1


def _row(operator: str, value: Any, scope: Scope) -> dict[str, Any] | None:
    time_ms = millis(value)
    assert time_ms is not None
    low, high = f"control.min.{scope.time_field}", f"control.max.{scope.time_field}"
    span_ms = scope.span_seconds * 1000
    earlier = DatetimeMS(max(time_ms - span_ms, -_LIMIT_MS))
    later = DatetimeMS(min(time_ms + span_ms, _LIMIT_MS))
    match operator:
        case "$gte":
            return {high: {"$gte": value}, low: {"$gte": earlier}}
        case "$gt":
            return {high: {"$gt": value}, low: {"$gte": earlier}}
        case "$lt":
            return {low: {"$lt": value}, high: {"$lte": later}}
        case "$lte":
            return {low: {"$lte": value}, high: {"$lte": later}}
        case "$eq":
            return {high: {"$gte": value, "$lte": later}, low: {"$lte": value, "$gte": earlier}}
        case _:
            return None
