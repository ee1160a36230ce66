"""Reads of one shape are planned a few times; after that, only their values are filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import bson
import pytest
from bson import Int64, ObjectId, Regex
from bson.datetime_ms import DatetimeMS

from proxy.reads.plan_slots import EARLIEST_MS, LATEST_MS, MOST_SLOTS
from rewrite.plan import Plan, Request, Rewriter
from rewrite.profile import Profile
from rewrite.registry import REWRITERS
from tests.support.inline_reads import Reads
from tests.support.raw_wire import command
from tests.support.scopes import TARGET

START_MS = 1_700_000_000_123
PLANS_OF_A_SHAPE = 4
"""The first read, the second one, and the two made-up ones of the template."""


class Counting:
    """Counts how often reads are planned."""

    def __init__(self, **options: Any) -> None:
        self.plans = 0
        self.reads = Reads(
            rewriters={name: self._counting(rewriter) for name, rewriter in REWRITERS.items()}, **options
        )

    def _counting(self, rewriter: Rewriter) -> Rewriter:
        def count(request: Request) -> Plan:
            self.plans += 1
            return rewriter(request)

        return count

    def ask(self, read: Mapping[str, Any]) -> dict[str, Any]:
        """The step of a read, which must be the one that the rewriter alone makes."""
        raw = command({**read, "$db": "db"})
        step, judge = self.reads.step_of(raw), Reads()
        judge.found, judge.profile = self.reads.found, self.reads.profile
        assert step == judge.step_of(raw)
        assert step is not None
        return bson.decode(step)


def minute(number: int, **more: Any) -> dict[str, Any]:
    """What a panel of a dashboard asks for."""
    start_ms = START_MS + 60_000 * number
    return {"m": f"host-{number:02}", "t": {"$gte": DatetimeMS(start_ms), "$lt": DatetimeMS(start_ms + 60_000)}, **more}


def find(query: Mapping[str, Any]) -> dict[str, Any]:
    return {"find": "x", "filter": query, "sort": {"t": -1}, "limit": 5}


def count(query: Mapping[str, Any]) -> dict[str, Any]:
    return {"count": "x", "query": query}


def distinct(query: Mapping[str, Any]) -> dict[str, Any]:
    return {"distinct": "x", "key": "m", "query": query}


def grouped(query: Mapping[str, Any]) -> dict[str, Any]:
    group = {"_id": {"$dateTrunc": {"date": "$t", "unit": "minute"}}, "most": {"$max": "$a"}}
    return {"aggregate": "x", "pipeline": [{"$match": query}, {"$group": group}], "cursor": {}}


@pytest.mark.parametrize("form", [find, count, distinct, grouped])
def test_reads_of_other_series_and_times_are_planned_by_a_template(form: Any) -> None:
    """Q11, Q12."""
    counting = Counting()
    steps = [counting.ask(form(minute(number))) for number in range(10)]
    assert counting.plans == PLANS_OF_A_SHAPE
    assert len({bson.encode(step) for step in steps}) == len(steps)


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, -3, 0, 2**31 - 1],
        [Int64(1), Int64(-(2**63)), Int64(7), Int64(0)],
        [ObjectId(bytes([number]) * 12) for number in range(4)],
        ["a", "b", "c", "."],
        ["ä", "öu"[:1], "é", "ab"],
        ["a b", "1.0", "{}}", "\0\0\0"],
    ],
    ids=str,
)
def test_series_of_any_usual_type(values: list[Any]) -> None:
    counting = Counting()
    for value in values:
        counting.ask(find({"m": value}))
        counting.ask(find({"m.host": value, "a": {"$gt": 1}}))
    assert counting.plans == 2 * PLANS_OF_A_SHAPE


@pytest.mark.parametrize(
    "odd",
    [
        {"m": "$host"},
        {"m": ""},
        {"m": None},
        {"m": Regex("^a")},
        {"m": {"$in": ["a", "b"]}},
        {"m": [1]},
        {"a": 1},
        {"t": DatetimeMS(START_MS)},
        {"t": {"$gte": DatetimeMS(EARLIEST_MS - 1)}},
        {"t": {"$lt": DatetimeMS(LATEST_MS + 1)}},
        {"t": {"$gte": DatetimeMS(START_MS), "$gt": DatetimeMS(START_MS)}},
        {"t": {"$gte": DatetimeMS(START_MS), "$lt": DatetimeMS(START_MS - 1)}},
        {"t": {"$gte": 5}},
        {"t": {"$gte": DatetimeMS(START_MS), "$ne": DatetimeMS(START_MS)}},
        {"$and": [{"m": "a"}]},
        {f"m.{number}": "a" for number in range(MOST_SLOTS + 1)},
        {},
    ],
    ids=str,
)
def test_values_that_may_be_rewritten_in_another_way_have_no_template(odd: dict[str, Any]) -> None:
    """H2."""
    counting = Counting()
    for number in range(6):
        # Reads that differ in what is never a value of a template.
        counting.ask({**find(odd), "limit": number + 1})
        counting.ask(grouped({**odd, "b": number}))
    assert counting.plans == 12


def test_values_at_the_limits_are_planned_by_a_template() -> None:
    """The bounds on ``_id`` do not wrap (H2)."""
    counting = Counting()
    for low_ms, high_ms in [
        (START_MS, START_MS),
        (START_MS + 1, START_MS + 2),
        (EARLIEST_MS, LATEST_MS),
        (EARLIEST_MS, EARLIEST_MS),
        (LATEST_MS, LATEST_MS),
        (EARLIEST_MS + 999, LATEST_MS - 999),
    ]:
        counting.ask(find({"t": {"$gt": DatetimeMS(low_ms), "$lte": DatetimeMS(high_ms)}}))
    assert counting.plans == PLANS_OF_A_SHAPE


def test_templates_hold_for_one_state_of_the_collection_and_of_the_backend() -> None:
    counting = Counting()
    query = {"t": {"$gte": DatetimeMS(START_MS)}}

    def ask_often() -> list[dict[str, Any]]:
        return [counting.ask(find({"t": {"$gte": DatetimeMS(START_MS + number)}})) for number in range(5)]

    usual = ask_often()
    counting.reads.found = replace(TARGET, extended_range=True)
    assert ask_often() != usual, "ids are not in the order of time (Q12)"
    counting.reads.profile = Profile(version=(5, 0, 4))
    ask_often()
    counting.reads.found = replace(TARGET, options=replace(TARGET.options, max_span_seconds=60))
    narrow = ask_often()
    assert narrow != usual
    assert counting.ask(find(query))


def test_a_literal_that_equals_a_made_up_value_costs_the_template_only() -> None:
    counting = Counting()
    for number in range(6):
        # One letter is found in other strings, too.
        counting.ask(grouped({"m": "abcdef"[number], "m.k": "qrstuv"[number], "b": "abcdefghijklmnopqrstuvwxyz"}))


def test_strings_of_other_lengths_and_other_literals_are_other_shapes() -> None:
    counting = Counting()
    for number in range(5):
        for length in (3, 4):
            for limit in (1, 2):
                counting.ask({**find({"m": chr(97 + number) * length, "m.k": "k" * (7 - length)}), "limit": limit})
    assert counting.plans == 4 * PLANS_OF_A_SHAPE


def test_a_repeated_read_is_known_without_its_template() -> None:
    counting = Counting()
    for number in range(4):
        counting.ask(find(minute(number)))
    before = counting.plans
    counting.ask(find(minute(3)))
    counting.ask(find(minute(0)))
    assert counting.plans == before


def test_a_full_memory_forgets_templates() -> None:
    counting = Counting(limit_bytes=3_000)
    for number in range(20):
        counting.ask(find(minute(number)))
    assert counting.plans > PLANS_OF_A_SHAPE
