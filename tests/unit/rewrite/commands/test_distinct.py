"""``distinct`` as an aggregate (Q1, C26)."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from rewrite.commands.distinct import distinct_reply, rewrite_distinct, values_by_path, values_by_unwinding
from rewrite.plan import PassThrough, Single
from rewrite.profile import Profile
from tests.support.operands import SCALARS, array_of, object_of, value_of
from tests.support.scopes import request
from tests.support.yardstick import least_seconds, seconds_of


def test_stages_and_reply() -> None:
    """5.0 has no stage that takes a path apart."""
    plan = rewrite_distinct(request({"distinct": "x", "key": "v.a"}))
    assert isinstance(plan, Single)
    assert plan.step.body["pipeline"][-3:] == values_by_path("v.a")
    old = rewrite_distinct(request({"distinct": "x", "key": "v.a"}, profile=Profile(version=(5, 0, 4))))
    assert isinstance(old, Single)
    assert old.step.body["pipeline"][-4:] == values_by_unwinding("v.a")
    for rows, values in (([{"distinct": [1]}], [1]), ([], [])):
        reply = distinct_reply(bson.encode({"cursor": {"firstBatch": rows}, "ok": 1.0}))
        assert bson.decode(reply) == {"values": values, "ok": 1}


def test_values_come_back_to_the_byte() -> None:
    values = array_of(*SCALARS.values())
    row = object_of({"distinct": values})
    cursor = object_of({"firstBatch": array_of(row)})
    reply = distinct_reply(object_of({"cursor": cursor, "ok": value_of(1.0), "operationTime": value_of(5)})[1:])
    assert reply == object_of({"values": values, "ok": value_of(1), "operationTime": value_of(5)})[1:]


def test_a_path_of_more_parts_than_a_server_knows_is_left_to_it() -> None:
    assert rewrite_distinct(request({"distinct": "x", "key": ".".join("v" * 10_000)})) == PassThrough()


@pytest.mark.parametrize(
    "options", [{}, {"key": 5}, {"key": ""}, {"key": "$a"}, {"key": "v", "query": 5}, {"key": "v", "hint": "i"}]
)
def test_what_the_backend_answers(options: dict[str, Any]) -> None:
    assert rewrite_distinct(request({"distinct": "x", **options})) == PassThrough()


def test_many_values_hold_the_loop_for_a_moment_only() -> None:
    """Sixteen megabytes of them."""
    reply = bson.encode({"cursor": {"firstBatch": [{"distinct": ["x" * 100] * 140_000}]}, "ok": 1.0})
    assert least_seconds(lambda: seconds_of(lambda: distinct_reply(reply)), 0.020) < 0.020
