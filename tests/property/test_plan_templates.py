"""A read gets the same step whether earlier reads of its shape have left a template or not, byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bson import Int64, ObjectId
from bson.datetime_ms import DatetimeMS
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.reads.plan_slots import EARLIEST_MS, LATEST_MS
from rewrite.profile import Profile
from tests.support.inline_reads import Reads
from tests.support.raw_wire import command
from tests.support.scopes import TARGET
from tests.support.wanted import SCALE

READS_OF_A_SHAPE = 8
META_FIELDS = ("m", "m.host", "m.tags.a", "meta")
LOW, HIGH = ("$gte", "$gt"), ("$lt", "$lte")
TIMES = st.one_of(
    st.integers(EARLIEST_MS - 2, EARLIEST_MS + 2),
    st.integers(LATEST_MS - 2, LATEST_MS + 2),
    st.integers(-(2**40), 2**43),
    st.sampled_from([0, -1, 2**31 * 1000, 2**32 * 1000, 1_700_000_000_000, 1_700_000_000_001]),
    st.integers(1_600_000_000_000, 1_800_000_000_000),
)
PROFILES = (Profile(), Profile(version=(5, 0, 4)))
TARGETS = (
    TARGET,
    replace(TARGET, extended_range=True),
    replace(TARGET, options=replace(TARGET.options, max_span_seconds=31_536_000)),
    replace(TARGET, options=replace(TARGET.options, meta_field=None)),
)


def of_a_length(length: int) -> st.SearchStrategy[str]:
    return st.text(st.sampled_from("ab$.\0z"), min_size=length, max_size=length)


@st.composite
def meta_values(draw: st.DrawFn) -> st.SearchStrategy[Any]:
    """Values of one type, and in most cases of one length."""
    return draw(
        st.sampled_from(
            [
                of_a_length(draw(st.integers(0, 6))),
                st.integers(-(2**31), 2**31 - 1),
                st.integers(-(2**63), 2**63 - 1).map(Int64),
                st.binary(min_size=12, max_size=12).map(ObjectId),
                st.one_of(st.booleans(), st.none(), st.floats(), st.lists(st.integers(0, 5), max_size=1)),
            ]
        )
    )


@st.composite
def reads(draw: st.DrawFn) -> Sequence[dict[str, Any]]:
    """Reads of one shape that ask for different series and times."""
    metas = [(name, draw(meta_values())) for name in draw(st.lists(st.sampled_from(META_FIELDS), unique=True))]
    bounds = draw(st.lists(st.sampled_from(LOW + HIGH), unique=True, max_size=3))
    equal = draw(st.sampled_from([None, None, None, "t", "$eq", "$ne"]))
    others = draw(st.dictionaries(st.sampled_from("ab"), st.sampled_from([1, {"$gt": 0.5}, "a", "ab"]), max_size=2))
    is_first = draw(st.booleans())
    form = draw(st.sampled_from(sorted(FORMS)))
    made = []
    for _ in range(READS_OF_A_SHAPE):
        query: dict[str, Any] = {name: draw(values) for name, values in metas}
        times: Any = {name: DatetimeMS(draw(TIMES)) for name in bounds}
        if equal in ("$eq", "$ne"):
            times[equal] = DatetimeMS(draw(TIMES))
        elif equal == "t":
            times = DatetimeMS(draw(TIMES))
        if times:
            query = {"t": times, **query} if is_first else {**query, "t": times}
        made.append(FORMS[form]({**query, **others}))
    return made


def aggregate(*stages: dict[str, Any]) -> Any:
    return lambda query: {"aggregate": "x", "pipeline": [{"$match": query}, *stages], "cursor": {}}


FORMS: dict[str, Any] = {
    "find": lambda query: {"find": "x", "filter": query},
    "latest": lambda query: {"find": "x", "filter": query, "sort": {"t": -1}, "limit": 1},
    "projected": lambda query: {"find": "x", "filter": query, "projection": {"a": 1, "_id": 0}, "batchSize": 7},
    "count": lambda query: {"count": "x", "query": query},
    "limited count": lambda query: {"count": "x", "query": query, "skip": 1, "limit": 3},
    "distinct": lambda query: {"distinct": "x", "key": "m.host", "query": query},
    "distinct values": lambda query: {"distinct": "x", "key": "a", "query": query},
    "rows": aggregate(),
    "by meta": aggregate({"$group": {"_id": "$m", "n": {"$sum": 1}, "most": {"$max": "$a"}}}),
    "by hour": aggregate(
        {"$group": {"_id": {"$dateTrunc": {"date": "$t", "unit": "hour"}}, "mean": {"$avg": "$a"}}},
        {"$sort": {"_id": 1}},
    ),
    "last": aggregate({"$sort": {"m": 1, "t": -1}}, {"$group": {"_id": "$m", "last": {"$first": "$a"}}}),
    "sorted": aggregate({"$sort": {"t": 1}}, {"$limit": 3}, {"$project": {"_id": 0, "a": 1}}),
    "matched twice": aggregate({"$match": {"t": {"$gte": DatetimeMS(1_700_000_000_000)}}}, {"$count": "n"}),
}


@settings(max_examples=max(1, int(150 * SCALE)), deadline=None)
@given(asked=reads(), target=st.sampled_from(TARGETS), profile=st.sampled_from(PROFILES))
def test_templates_change_no_step(asked: Sequence[dict[str, Any]], target: Any, profile: Profile) -> None:
    """Q11, Q12, H2."""
    learning = Reads()
    learning.found, learning.profile = target, profile
    for read in asked:
        raw, judge = command({**read, "$db": "db"}), Reads()
        judge.found, judge.profile = target, profile
        assert learning.step_of(raw) == judge.step_of(raw)
