from __future__ import annotations

from dataclasses import replace
from typing import Any

import bson
import pytest
from bson import Binary, Int64, Timestamp

from proxy.reads.plan_cache import LONGEST_BYTES, CachedPlan, PlanCache, Question, question
from proxy.request.command import Command, parse_command
from proxy.request.recognition import memory
from proxy.wire.message import Message
from rewrite.plan import Cursor, Step
from rewrite.profile import Profile
from tests.support.raw_wire import body, command, op_msg_bytes
from tests.support.scopes import TARGET

PROFILE = Profile()
PLAN = Cursor(Step("db", {"aggregate": "system.buckets.x"}), TARGET.namespace)
KEPT = CachedPlan(TARGET, PROFILE, PLAN, bson.encode(PLAN.step.body))


TIME = {"clusterTime": Timestamp(1, 1)}


def session(number: int) -> dict[str, Any]:
    return {"id": Binary(bytes([number] * 16), 4)}


def parsed(document: dict[str, Any]) -> Command:
    return parse_command(Message.from_bytes(command(document)))


def elements(document: dict[str, Any]) -> bytes:
    return bson.encode(document)[4:-1]


def asked(number: int) -> Question:
    return Question(elements({"find": "x", "limit": number}), b"", in_transaction=False)


def test_what_is_asked_and_the_session_that_it_is_asked_in() -> None:
    read = {"find": "x", "lsid": session(1), "filter": {"a": 1}, "$db": "d", "apiVersion": "1", "stmtId": 5}
    taken = question(parsed({**read, "$clusterTime": TIME}))
    assert taken == Question(
        elements({"find": "x", "filter": {"a": 1}}),
        elements({"lsid": session(1), "apiVersion": "1", "$clusterTime": TIME}),
        in_transaction=False,
    )
    again = question(parsed({**read, "lsid": session(2)}), also_left_out=b"filter")
    assert again is not None
    assert again.asked == elements({"find": "x"})


def test_transaction_goes_along_with_what_belongs_to_it() -> None:
    """X1."""
    fields = {"txnNumber": Int64(3), "autocommit": False, "startTransaction": True}
    taken = question(parsed({"find": "x", **fields, "$db": "d"}))
    assert taken == Question(elements({"find": "x"}), elements(fields), in_transaction=True)


@pytest.mark.parametrize(
    "odd",
    [
        {"txnNumber": Int64(3)},
        {"startTransaction": True},
        {"txnNumber": Int64(3), "autocommit": True, "startTransaction": True},
    ],
    ids=str,
)
def test_transaction_that_is_none_is_for_the_backend_to_refuse(odd: dict[str, Any]) -> None:
    """X1."""
    assert question(parsed({"find": "x", **odd, "$db": "d"})) is None


@pytest.mark.parametrize(
    "odd",
    [{"lsid": {"id": 1}}, {"$clusterTime": {}}, {"apiStrict": True}, {"autocommit": 0}, {"txnNumber": 1}],
    ids=str,
)
def test_session_of_unusual_types_is_for_the_backend_to_judge(odd: dict[str, Any]) -> None:
    assert question(parsed({"find": "x", **odd, "$db": "d"})) is None


def test_name_that_stands_twice_is_for_others_to_judge() -> None:
    raw = bson.encode({"find": "x", "limit": 1, "limiu": 2, "$db": "d"}).replace(b"limiu", b"limit")
    assert question(parse_command(Message.from_bytes(op_msg_bytes(body(raw))))) is None


def test_plan_is_found_while_all_is_as_it_was() -> None:
    plans = PlanCache(memory())
    plans.keep(b"db", asked(1), KEPT)
    assert plans.find(b"db", asked(1), TARGET, PROFILE) is KEPT
    assert plans.find(b"db", asked(2), TARGET, PROFILE) is None
    assert plans.find(b"other", asked(1), TARGET, PROFILE) is None
    assert plans.find(b"db", replace(asked(1), in_transaction=True), TARGET, PROFILE) is None
    assert plans.find(b"db", asked(1), replace(TARGET), PROFILE) is None
    assert plans.find(b"db", asked(1), TARGET, Profile()) is None


def test_plan_not_used_for_longest_goes_first() -> None:
    kept = memory()
    PlanCache(kept).keep(b"db", asked(1), KEPT)
    plans = PlanCache(memory(limit_bytes=2 * kept.size_bytes))
    plans.keep(b"db", asked(1), KEPT)
    plans.keep(b"db", asked(2), KEPT)
    assert plans.find(b"db", asked(1), TARGET, PROFILE) is KEPT
    plans.keep(b"db", asked(3), KEPT)
    assert [plans.find(b"db", asked(n), TARGET, PROFILE) is not None for n in (1, 2, 3)] == [True, False, True]


def test_long_questions_are_not_kept() -> None:
    plans = PlanCache(memory())
    long = Question(bytes(LONGEST_BYTES + 1), b"", in_transaction=False)
    plans.keep(b"db", long, KEPT)
    plans.keep(b"db", asked(1), CachedPlan(TARGET, PROFILE, PLAN, bytes(LONGEST_BYTES + 1)))
    assert plans.find(b"db", long, TARGET, PROFILE) is None
    assert plans.find(b"db", asked(1), TARGET, PROFILE) is None


def test_questions_with_a_trace_context_are_not_kept() -> None:
    """Each of these differs from all others."""
    plans = PlanCache(memory())
    comment = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    traced = question(parsed({"find": "rows", "comment": comment, "$db": "db"}))
    assert traced is not None
    plans.keep(b"db", traced, KEPT)
    assert plans.find(b"db", traced, TARGET, PROFILE) is None
