"""``getMore`` by the names that clients know (C23); with a server: tests/differential/test_find.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bson
import pytest
from bson import Int64

from catalog.namespaces import Namespace, VirtualCollection
from proxy.reads.cursor_names import CursorNames
from proxy.reads.cursors import (
    NotOnBuckets,
    continue_as_it_is,
    continue_cursor,
    cursor_of,
    error_code,
    is_ok,
    knows_cursor,
    string_of,
)
from proxy.request.command import parse_command
from proxy.request.session_fields import session_of
from proxy.wire.message import Message
from tests.support.raw_wire import command
from tests.support.scopes import TARGET
from tests.support.scripted_session import Reply, ScriptedSession

BUCKETS = TARGET.namespace.buckets
UNAUTHORIZED = {"ok": 0.0, "code": 13, "errmsg": "not authorized"}


def batch(cursor_id: int, name: Namespace = BUCKETS) -> dict[str, Any]:
    return {"cursor": {"nextBatch": [{"a": 1}], "id": Int64(cursor_id), "ns": str(name)}, "ok": 1.0}


class Cursors:
    """What the proxy knows of cursors, and a client that continues one."""

    def __init__(self, *replies: Reply, known: int | None = 7) -> None:
        self.names = CursorNames()
        self.session = ScriptedSession(*replies)
        if known is not None:
            self.names.opened(known, BUCKETS)

    async def more(
        self,
        collection: str = "x",
        resolved: VirtualCollection | None = TARGET,
        was_relayed: Callable[[int], bool] = lambda _: False,
    ) -> dict[str, Any]:
        raw = command({"getMore": Int64(7), "collection": collection, "batchSize": 2, "$db": "db"})
        parsed = parse_command(Message.from_bytes(raw))
        fields = session_of(parsed.body)
        reply = await continue_cursor(self.session, self.names, parsed, lambda _: resolved, fields, was_relayed)
        return bson.decode(reply)

    @property
    def asked(self) -> list[str]:
        return [body["collection"] for _, body in self.session.upstream.asked]


async def test_a_known_cursor_is_continued_where_the_backend_keeps_it() -> None:
    cursors = Cursors(batch(7), batch(0))
    assert (await cursors.more())["cursor"]["ns"] == "db.x"
    assert cursors.session.upstream.asked[0] == (
        "db",
        {"getMore": 7, "collection": "system.buckets.x", "batchSize": 2},
    )
    assert knows_cursor(cursors.names, 7)
    await cursors.more()
    assert not knows_cursor(cursors.names, 7), "it is exhausted"


async def test_a_cursor_that_the_backend_has_ended_is_forgotten() -> None:
    cursors = Cursors({"ok": 0.0, "code": 43, "errmsg": "cursor id 7 not found"})
    assert (await cursors.more())["code"] == 43
    assert not knows_cursor(cursors.names, 7)


async def test_the_cursor_of_another_collection_is_refused_in_the_names_that_the_client_knows() -> None:
    refusal = {"ok": 0.0, "code": 13, "errmsg": "Requested getMore on db.y, but cursor belongs to db.system.buckets.x"}
    cursors = Cursors(refusal)
    assert (await cursors.more("y"))["errmsg"] == "Requested getMore on db.y, but cursor belongs to db.x"
    assert cursors.asked == ["y"]


async def test_a_cursor_is_refused_by_the_name_of_its_buckets() -> None:
    names = "on namespace 'db.{}', but cursor belongs to a different namespace db.{}"
    cursors = Cursors({"ok": 0.0, "code": 13, "errmsg": names.format("x", "system.buckets.x")})
    assert (await cursors.more("system.buckets.x"))["errmsg"] == names.format("system.buckets.x", "x")
    assert cursors.asked == ["x"]
    assert knows_cursor(cursors.names, 7)


async def test_a_cursor_that_was_opened_on_the_buckets_is_refused_by_the_name_of_the_collection() -> None:
    cursors = Cursors(UNAUTHORIZED, known=None)
    assert (await cursors.more(was_relayed=lambda cursor_id: cursor_id == 7))["code"] == 13
    assert cursors.asked == ["x"]


async def test_a_cursor_of_another_process_is_sought_on_the_buckets() -> None:
    cursors = Cursors(UNAUTHORIZED, batch(7), known=None)
    assert (await cursors.more())["cursor"]["ns"] == "db.x"
    assert cursors.asked == ["x", "system.buckets.x"]
    assert knows_cursor(cursors.names, 7)


@pytest.mark.parametrize(("replies", "asked"), [([UNAUTHORIZED] * 2, 2), ([{"ok": 0.0, "code": 43}], 1)])
async def test_who_owns_no_such_cursor_gets_the_first_refusal(replies: list[Reply], asked: int) -> None:
    cursors = Cursors(*replies, known=None)
    assert (await cursors.more())["code"] == replies[0]["code"]  # type: ignore[index]
    assert len(cursors.asked) == asked


def test_cursors_that_are_not_on_buckets_are_remembered_up_to_a_limit() -> None:
    on_buckets = CursorNames()
    on_buckets.opened(7, BUCKETS)
    found = NotOnBuckets(max_remembered=2)
    for cursor_id, reply in ((1, UNAUTHORIZED), (2, batch(2)), (7, batch(7)), (3, batch(3)), (4, batch(0))):
        found.answered(bson.encode({"getMore": Int64(cursor_id), "collection": "x"}), bson.encode(reply), on_buckets)
    found.answered(bson.encode({"getMore": "5"}), bson.encode(batch(5)), on_buckets)
    assert [each for each in (1, 2, 3, 4, 5, 7, "5", {}) if each in found] == [3, 4]


async def test_on_an_ordinary_collection_the_refusal_stands() -> None:
    cursors = Cursors(UNAUTHORIZED, known=None)
    assert (await cursors.more(resolved=None))["code"] == 13
    assert len(cursors.asked) == 1


@pytest.mark.parametrize(("value", "cursor_id"), [(Int64(5), 5), (5, None), (5.0, None), ("5", None)])
def test_only_a_long_names_a_cursor(value: Any, cursor_id: int | None) -> None:
    raw = bson.encode({"": value})
    assert cursor_of(raw[4:5] + raw[6:-1]) == cursor_id
    assert cursor_of(b"") is None


def test_what_is_no_text_has_no_name() -> None:
    assert string_of(b"\x02\x02\0\0\0a\0") == "a"
    assert string_of(b"\x02\x02\0\0\0\xff\0") == string_of(b"\x10\1\0\0\0") == string_of(b"") == ""


@pytest.mark.parametrize(("ok", "good"), [(1, True), (1.0, True), (Int64(1), True), (0, False), (0.0, False)])
def test_c26_a_reply_is_good_whatever_the_type_of_its_number(ok: Any, good: bool) -> None:
    reply = bson.encode({"ok": ok, "code": 5})
    assert (is_ok(reply), error_code(reply)) == (good, None if good else 5)


def test_errors_may_quote_what_is_no_utf8() -> None:
    raw = bson.encode({"ok": 0.0, "errmsg": "ab", "code": 9}).replace(b"ab\0", b"\xff\xfe\0")
    assert error_code(raw) == 9


@pytest.mark.parametrize(
    ("collection", "known", "asked"), [("x", 7, ["system.buckets.x"]), ("y", 7, []), ("x", None, [])]
)
async def test_unusual_fields_are_sent_as_they_are(collection: str, known: int | None, asked: list[str]) -> None:
    cursors = Cursors(batch(7), known=known)
    raw = command({"getMore": Int64(7), "collection": collection, "batchSize": "2", "$db": "db"})
    reply = await continue_as_it_is(cursors.session, cursors.names, parse_command(Message.from_bytes(raw)))
    assert (reply is not None) == bool(asked)
    assert cursors.asked == asked
    assert all(body["batchSize"] == "2" for _, body in cursors.session.upstream.asked)
