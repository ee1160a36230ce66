from __future__ import annotations

import asyncio
from typing import Any

import bson
import pytest

from catalog.namespaces import Namespace
from proxy.clients.left_reader import LeftReader, LeftReaders, leaves_cursor
from proxy.readers.active_readers import ActiveReaders, CountedReader
from proxy.reads.cursor_names import CursorNames
from proxy.request.exchange import Exchange
from proxy.wire.message import Message
from proxy.wire.op_msg import EXHAUST_ALLOWED, MORE_TO_COME
from tests.support.exchanges import Told
from tests.support.network import FakeClient
from tests.support.raw_wire import command, document_of
from tests.support.sessions import session

FIND = {"find": "c", "lsid": {"id": 7}, "apiVersion": "1", "limit": 9, "$db": "db"}
MORE = {"getMore": bson.Int64(5), "collection": "c", "$db": "db"}
WAY_OUT_SECONDS = 5.0


def reading(body: dict[str, Any], *, flags: int = 0, is_reader: bool = True) -> Exchange:
    exchange = Exchange(session(), FakeClient(), Message.from_bytes(command(body, flags=flags)), Told())
    if is_reader:
        exchange.enter(CountedReader(ActiveReaders(), Namespace("db", "c"), CursorNames()))
    return exchange


def reply(cursor_id: int) -> bytes:
    return command({"cursor": {"firstBatch": [{}], "id": bson.Int64(cursor_id), "ns": "db.c"}, "ok": 1.0})


@pytest.mark.parametrize(
    ("exchange", "expected"),
    [
        (reading(FIND), True),
        (reading({"aggregate": "c", "pipeline": [], "$db": "db"}), True),
        (reading(MORE), True),
        (reading(MORE, flags=EXHAUST_ALLOWED), False),
        (reading(FIND, flags=MORE_TO_COME), False),
        (reading(FIND, is_reader=False), False),
        (reading({"count": "c", "$db": "db"}), False),
        (reading({"find": "c"}), False),
    ],
)
def test_what_is_waited_for(exchange: Exchange, expected: bool) -> None:
    assert leaves_cursor(exchange) is expected


@pytest.mark.parametrize(
    ("body", "named", "kept"),
    [
        (FIND, "c", {"lsid": {"id": 7}, "apiVersion": "1"}),
        (MORE, "c", {}),
        ({"aggregate": 1, "pipeline": [], "$db": "db"}, "$cmd.aggregate", {}),
    ],
)
async def test_the_cursor_of_the_last_bytes_is_closed_once(body: dict[str, Any], named: str, kept: Any) -> None:
    left = LeftReader(("203.0.113.9", 5), lambda: None, reading(body), LeftReaders())
    whole = reply(6)
    left.write(whole[:30])
    left.write(memoryview(whole)[30:])
    message = left.closing_command()
    assert message is not None
    assert document_of(message) == {"killCursors": named, "cursors": [6], **kept, "$db": "db"}
    assert left.closing_command() is None
    left.close()


async def test_what_was_relayed_before_the_client_left_counts() -> None:
    exchange, whole = reading(FIND), reply(8)
    exchange.write(whole[:-3])
    left = LeftReader(None, lambda: None, exchange, LeftReaders())
    left.write(whole[-3:])
    assert left.closing_command() is not None
    left.close()


@pytest.mark.parametrize("written", [reply(0), command({"ok": 0.0, "code": 13}), b""])
async def test_without_a_cursor_there_is_nothing_to_close(written: bytes) -> None:
    left = LeftReader(None, lambda: None, reading(FIND), LeftReaders())
    left.write(written)
    assert left.closing_command() is None
    left.close()


async def test_it_closes_itself_and_their_number_is_bounded() -> None:
    readers, closed = LeftReaders(most=2), asyncio.Event()
    first, second = (LeftReader(None, closed.set, reading(FIND), readers, 0.01) for _ in range(2))
    assert (readers.count, readers.has_room) == (2, False)
    first.close()
    first.close()
    assert (readers.count, readers.has_room) == (1, True)
    closed.clear()
    async with asyncio.timeout(WAY_OUT_SECONDS):
        await closed.wait()
    assert (readers.count, second.is_closing()) == (0, True)
