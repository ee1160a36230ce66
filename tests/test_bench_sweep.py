"""Workload K judges rows and times."""

from __future__ import annotations

import datetime as dt
from typing import Any

import bson
import pytest

from bench.kinds import all_kinds
from bench.kinds.comparing import differences
from bench.kinds.kind import Kind, Times, find
from bench.kinds.verdict import AS_STORED, PAST, allowed_ms, pairs, reason_for, slower
from bench.results import Results, Sample

NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
KINDS = all_kinds(Times(NOON, NOON + dt.timedelta(hours=1)))
ORDERED = find("ordered", sort={"v": 1, "_id": 1})


def test_kinds() -> None:
    """The collection's name is filled in everywhere."""
    assert len(KINDS) >= 200
    for kind in KINDS:
        command = kind.of("x")
        assert "@" not in str(command)
        assert next(iter(command)) == next(iter(kind.command))


@pytest.mark.parametrize(
    ("kind", "found", "same"),
    [
        (find("any"), [{"b": 1, "a": 2.0}, {"a": 1}], True),
        (find("any"), [{"a": 1}, {"a": 1}], False),
        (find("any"), [{"a": 1}], False),
        (find("any", compares="number"), [{}, {}], True),
        (ORDERED, [{"a": 1}, {"a": 2.0, "b": 1}], True),
        (ORDERED, [{"a": 2.0, "b": 1}, {"a": 1}], False),
    ],
)
def test_rows(kind: Kind, found: list[dict[str, Any]], same: bool) -> None:
    """Fields in any order; rows in order where the command determines it."""
    wanted = [bson.encode(row) for row in ({"a": 1}, {"a": 2.0000000000001, "b": 1})]
    assert (differences(kind, wanted, [bson.encode(row) for row in found]) == "") is same


def test_times() -> None:
    """A read through the proxy may take a seventh longer, and the time of the hop."""
    samples = [
        Sample("K", case, target, 0, {"least_ms": milliseconds})
        for case, native, proxy in (("fast", 1.0, 1.4), ("slow", 1.0, 1.5))
        for target, milliseconds in (("native", native), ("proxy", proxy))
    ]
    samples.append(Sample("K", "failed", "native", 0, {}, "rows"))
    summaries = Results({}, samples).summaries()
    assert pairs(summaries) == {"fast": (1.0, 1.4), "slow": (1.0, 1.5)}
    assert [each.case for each in slower(summaries)] == ["slow"]
    assert allowed_ms(10) == pytest.approx(11.75)


def test_reasons() -> None:
    """One that is listed, or that the server takes as long for the proxy's buckets when it is asked itself."""
    assert reason_for("open · indexed · find series", 1.5, None) == ""
    assert reason_for("open · indexed · find series", 1.5, 1.3) == AS_STORED
    assert reason_for("open · indexed · find series", 1.5, 1.0) == ""
    assert "H4" in reason_for("late · not indexed · $group $max of object", 9.0, 8.9)
    metrics = ({"least_ms": 1.0}, {"least_ms": 9.0, PAST: 8.9})
    samples = [Sample("K", "x", target, 0, each) for target, each in zip(("native", "proxy"), metrics, strict=True)]
    assert [(each.past_ms, each.reason) for each in slower(Results({}, samples).summaries())] == [(8.9, AS_STORED)]
