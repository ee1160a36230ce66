"""Bounds on the time field (Q11, Q12)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from rewrite.stages.time_bounds import Interval, millis, time_predicate
from tests.support.scopes import SCOPE

SPAN_MS = 3_600_000
T_MS = 1_700_000_000_500
T = DatetimeMS(T_MS)
LATER, EARLIER = DatetimeMS(T_MS + SPAN_MS), DatetimeMS(T_MS - SPAN_MS)


def test_dates() -> None:
    assert millis(T) == T_MS
    assert millis(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1000
    assert millis(T_MS) is None


@pytest.mark.parametrize(
    ("operand", "predicate"),
    [
        ({"$gte": T}, {"control.max.t": {"$gte": T}, "control.min.t": {"$gte": EARLIER}}),
        ({"$gt": T}, {"control.max.t": {"$gt": T}, "control.min.t": {"$gte": EARLIER}}),
        ({"$lt": T}, {"control.min.t": {"$lt": T}, "control.max.t": {"$lte": LATER}}),
        ({"$lte": T}, {"control.min.t": {"$lte": T}, "control.max.t": {"$lte": LATER}}),
        (T, {"control.max.t": {"$gte": T, "$lte": LATER}, "control.min.t": {"$lte": T, "$gte": EARLIER}}),
        ({"$ne": T}, None),
        ({"$gte": 5}, None),
        ({"$in": []}, None),
        ({"$in": [T, 1]}, None),
        (None, None),
    ],
)
def test_control_predicates(operand: Any, predicate: dict[str, Any] | None) -> None:
    """Q11, row by row; what is no date says nothing."""
    assert time_predicate(operand, SCOPE) == predicate


def test_several_operators() -> None:
    predicate = time_predicate({"$gte": T, "$in": [T]}, SCOPE)
    assert predicate is not None
    assert [list(arm) for arm in predicate["$and"]] == [["control.max.t", "control.min.t"], ["$or"]]


@pytest.mark.parametrize(
    ("operand", "interval"),
    [
        ({"$gte": T, "$lt": LATER}, Interval(T_MS, T_MS + SPAN_MS)),
        ({"$eq": T}, Interval(T_MS, T_MS)),
        ({"$in": [T, EARLIER]}, Interval(T_MS - SPAN_MS, T_MS)),
        ({"$in": [T, None]}, Interval()),
        ({"$ne": T}, Interval()),
        ({"$gt": T, "$gte": EARLIER}, Interval(low_ms=T_MS)),
    ],
)
def test_intervals(operand: Any, interval: Interval) -> None:
    assert Interval.of(operand) == interval


def ids(low: str | None, high: str | None) -> dict[str, Any]:
    """Bounds with these seconds."""
    bounds = {}
    if low is not None:
        bounds["$gte"] = ObjectId(low + "00" * 8)
    if high is not None:
        bounds["$lte"] = ObjectId(high + "ff" * 8)
    return {"_id": bounds}


def test_id_bounds() -> None:
    """Q12: from a span before the start to the second after the end."""
    low, high = f"{1_700_000_000 - 3600:08x}", f"{1_700_000_001:08x}"
    assert Interval(T_MS, T_MS).id_predicate(SCOPE) == ids(low, high)
    assert Interval(low_ms=T_MS).id_predicate(SCOPE) == ids(low, None)
    assert Interval(high_ms=T_MS).id_predicate(SCOPE) == ids(None, high)
    assert Interval().id_predicate(SCOPE) is None


@pytest.mark.parametrize("time_ms", [3_599_000, -1, 2**32 * 1000])
def test_ids_that_would_wrap(time_ms: int) -> None:
    """Q12, H2."""
    interval = Interval(time_ms, time_ms)
    assert interval.outside_id_range(SCOPE)
    assert interval.id_predicate(SCOPE) is None


def test_stored_times_outside_the_range() -> None:
    """Q12b: both ends together stay sound, one alone does not."""
    scope = replace(SCOPE, extended_range=True)
    assert Interval(T_MS, T_MS).id_predicate(scope) == Interval(T_MS, T_MS).id_predicate(SCOPE)
    assert Interval(low_ms=T_MS).id_predicate(scope) is None
    assert Interval(high_ms=T_MS).id_predicate(scope) is None
