from __future__ import annotations

from typing import Any

import bson
import pytest

from proxy.request.command import Command, parse_command
from proxy.request.trace_context import carried_trace, may_carry_trace
from proxy.wire.message import Message
from tests.support.raw_wire import command

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def parsed(**fields: Any) -> Command:
    return parse_command(Message.from_bytes(command({"find": "rows", **fields, "$db": "weather"})))


@pytest.mark.parametrize(
    ("comment", "carried"),
    [
        (PARENT, {"traceparent": PARENT}),
        ({"traceparent": PARENT}, {"traceparent": PARENT}),
        ({"traceparent": PARENT, "tracestate": "a=b"}, {"traceparent": PARENT, "tracestate": "a=b"}),
        ({"other": 1, "traceparent": PARENT, "tracestate": 5}, {"traceparent": PARENT}),
        ({"traceparent": PARENT, "tracestate": "a" * 513}, {"traceparent": PARENT}),
    ],
)
def test_both_forms_are_understood(comment: object, carried: dict[str, str]) -> None:
    found = parsed(comment=comment)
    assert may_carry_trace(found.message.raw)
    assert carried_trace(found) == carried


@pytest.mark.parametrize(
    "comment",
    ["", "nightly", PARENT + "0", 5, None, [PARENT], {"traceparent": 5}, {"traceparent": PARENT[1:]}, {"a": PARENT}],
)
def test_other_comments_carry_nothing(comment: object) -> None:
    found = parsed(comment=comment)
    assert not may_carry_trace(found.message.raw)
    assert carried_trace(found) == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"filter": {"comment": PARENT}},
        {"filter": {"traceparent": PARENT}},
        {"comment": {"traceparent": PARENT, "more": "x" * 3_000}},
        {"comment": {"inner": {"traceparent": PARENT}}},
    ],
)
def test_what_is_not_the_comment_itself_carries_nothing(fields: dict[str, Any]) -> None:
    assert may_carry_trace(parsed(**fields).message.raw)
    assert carried_trace(parsed(**fields)) == {}


def test_the_search_is_bounded() -> None:
    raw = bson.encode({"padding": "x" * 200, "comment": PARENT})
    assert may_carry_trace(raw)
    assert not may_carry_trace(raw, 200)
