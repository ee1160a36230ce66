"""What follows from each outcome: the whole table, and how replies and errors become outcomes."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Int64

from catalog.errors import BackendUnavailable, CommandError
from proxy.request.attempt import (
    CursorMissing,
    Deposed,
    Lost,
    NeedsTranslation,
    Next,
    NotTranslatable,
    Outcome,
    Primary,
    Refused,
    Replied,
    Situation,
    Streamed,
    Unexpected,
    Unreachable,
    may_be_sent_again,
    of_error,
    of_reply,
    what_follows,
)
from proxy.request.command import parse_command
from proxy.upstream.connection import UpstreamLost
from proxy.wire import op_msg
from proxy.wire.message import Message
from tests.support.raw_wire import command

DOCUMENT = bson.encode({"ok": 1.0})
GONE = BackendUnavailable("gone")
ALONE = Situation()
REPEATABLE = Situation(repeatable=True)
LOGGED_IN = Situation(repeatable=True, has_login=True)
AT_MEMBER = Situation(repeatable=True, at_member=True)
STAYED, MOVED, LEFT_LOGIN = (
    Situation(repeatable=True, primary=primary) for primary in (Primary.STAYS, Primary.MOVED, Primary.MOVED_FROM_LOGIN)
)
EVERYWHERE = [ALONE, REPEATABLE, LOGGED_IN, AT_MEMBER, STAYED, MOVED, LEFT_LOGIN]


@pytest.mark.parametrize(
    ("outcome", "situation", "following"),
    [
        (Deposed(DOCUMENT), ALONE, Next.REPLY),
        (Deposed(DOCUMENT), REPEATABLE, Next.FIND_PRIMARY),
        (Deposed(DOCUMENT), LOGGED_IN, Next.FIND_PRIMARY),
        (Deposed(DOCUMENT), AT_MEMBER, Next.LEAVE_MEMBER),
        (Deposed(DOCUMENT), STAYED, Next.REPLY),
        (Deposed(DOCUMENT), MOVED, Next.BEGIN_AGAIN),
        (Deposed(DOCUMENT), LEFT_LOGIN, Next.REAUTHENTICATE),
        (Lost(), ALONE, Next.CLOSE),
        (Lost(), REPEATABLE, Next.FIND_PRIMARY),
        (Lost(), LOGGED_IN, Next.FIND_PRIMARY),
        (Lost(), AT_MEMBER, Next.LEAVE_MEMBER),
        (Lost(), STAYED, Next.CLOSE),
        (Lost(), MOVED, Next.BEGIN_AGAIN),
        (Lost(), LEFT_LOGIN, Next.REAUTHENTICATE),
        (Unreachable(GONE), ALONE, Next.REFUSE_RETRYABLY),
        (Unreachable(GONE), REPEATABLE, Next.REFUSE_RETRYABLY),
        (Unreachable(GONE), AT_MEMBER, Next.LEAVE_MEMBER),
        (Unreachable(GONE), Situation(has_login=True), Next.CLOSE),
        (Unreachable(GONE), LOGGED_IN, Next.CLOSE),
        (CursorMissing(DOCUMENT), ALONE, Next.REPLY),
        (CursorMissing(DOCUMENT), REPEATABLE, Next.REPLY),
        (CursorMissing(DOCUMENT), Situation(may_seek=True), Next.SEEK_CURSOR),
    ],
    ids=str,
)
def test_where_the_situation_counts(outcome: Outcome, situation: Situation, following: Next) -> None:
    assert what_follows(outcome, situation) is following


@pytest.mark.parametrize("situation", EVERYWHERE, ids=str)
@pytest.mark.parametrize(
    ("outcome", "following"),
    [
        (Replied(DOCUMENT), Next.REPLY),
        (Replied(None), Next.REPLY),
        (Streamed(DOCUMENT), Next.FINISH),
        (Lost(partly_sent=True), Next.CLOSE),
        (Refused(CommandError(2, "no good")), Next.REFUSE),
        (Refused(CommandError(10107, "not primary")), Next.REFUSE_RETRYABLY),
        (Refused(GONE), Next.REFUSE_RETRYABLY),
        (NeedsTranslation(None), Next.TRANSLATE),
        (NotTranslatable(None), Next.RELAY),
        (Unexpected(KeyError("bug")), Next.REPORT),
        (Unexpected(KeyError("bug"), in_doubt=True), Next.REPORT_AND_CLOSE),
    ],
    ids=str,
)
def test_where_it_does_not(outcome: Outcome, situation: Situation, following: Next) -> None:
    assert what_follows(outcome, situation) is following


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (UpstreamLost("cut"), Lost()),
        (GONE, Unreachable(GONE)),
        (refusal := CommandError(2, "no"), Refused(refusal)),
        (bug := KeyError("x"), Unexpected(bug)),
    ],
    ids=str,
)
def test_every_error_is_an_outcome(error: Exception, outcome: Outcome) -> None:
    assert of_error(error) == outcome


@pytest.mark.parametrize(
    ("reply", "name", "kind"),
    [
        ({"ok": 1.0}, "find", Replied),
        ({"ok": 0.0, "code": 2}, "find", Replied),
        ({"ok": 0.0, "code": 10107}, "find", Deposed),
        ({"ok": 1.0, "writeErrors": [{"index": 0, "code": 10107}]}, "insert", Deposed),
        ({"ok": 1.0, "v": {"code": 10107}}, "find", Replied),
        ({"ok": 0.0, "code": 43}, "find", Replied),
        ({"ok": 0.0, "code": 43}, "getMore", CursorMissing),
        ({"ok": 0.0, "code": 10107}, "getMore", Replied),
        ({"ok": 1.0, "code": 43}, "getMore", Replied),
    ],
    ids=str,
)
def test_reply_tells_its_outcome(reply: dict[str, Any], name: str, kind: type) -> None:
    document = bson.encode(reply)
    assert of_reply(document, name, b"raw") == kind(document, b"raw")


@pytest.mark.parametrize("flags", [op_msg.MORE_TO_COME, op_msg.EXHAUST_ALLOWED])
def test_nothing_without_exactly_one_reply_is_sent_again(flags: int) -> None:
    raw = command({"find": "x", "insert": "x", "txnNumber": Int64(1), "$db": "d"}, flags=flags)
    assert not may_be_sent_again(parse_command(Message.from_bytes(raw)))
    assert not may_be_sent_again(None)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"find": "x"}, True),
        ({"find": "x", "txnNumber": 1, "autocommit": False}, False),
        ({"insert": "x", "txnNumber": 1}, True),
        ({"insert": "x"}, False),
        ({"aggregate": "x", "pipeline": [{"$match": {}}]}, True),
        ({"aggregate": "x", "pipeline": [{"$out": "y"}]}, False),
        ({"aggregate": "x", "pipeline": [{"$merge": "y"}]}, False),
        ({"getMore": 1}, False),
        ({"createIndexes": "x"}, False),
    ],
    ids=str,
)
def test_only_what_is_harmless_twice_is_sent_again(body: dict[str, object], expected: bool) -> None:
    command = parse_command(Message.from_bytes(op_msg.build(1, 0, bson.encode({**body, "$db": "app"}))))
    assert may_be_sent_again(command) is expected
