"""Readers are counted by database; ``test_register`` shows joins and readers together."""

from __future__ import annotations

import asyncio

import bson
from bson import Int64

from catalog.namespaces import Namespace
from proxy.readers.active_readers import ActiveReaders, CountedReader
from proxy.reads.cursor_names import CursorNames

COLLECTION = Namespace("d", "x")


async def test_a_database_is_empty_when_the_last_reader_has_left() -> None:
    active = ActiveReaders()
    assert await active.emptied("d", 0.0)
    for _ in range(2):
        active.enter("d")
    active.leave("d")
    assert not await active.emptied("d", 0.001)
    asyncio.get_running_loop().call_soon(active.leave, "d")
    assert await active.emptied("d", 5.0)
    assert await active.emptied("d", 0.0)


async def test_new_readers_wait_while_they_are_kept_out() -> None:
    active = ActiveReaders()
    active.keep_out("d")
    assert (active.keeps_out("d"), active.keeps_out("other")) == (True, False)
    await active.admitted("other")
    waiting = asyncio.ensure_future(active.admitted("d"))
    await asyncio.sleep(0)
    assert not waiting.done()
    active.admit("d")
    await asyncio.wait_for(waiting, 20)
    assert not active.keeps_out("d")


def test_cursors_that_replies_leave_open_are_recorded_until_they_end() -> None:
    active, cursors = ActiveReaders(), CursorNames()
    reply = bson.encode({"cursor": {"firstBatch": [], "id": Int64(7), "ns": "d.c"}, "ok": 1.0})
    for reader, tail, open_cursor in (
        (CountedReader(active, COLLECTION), reply, False),
        (CountedReader(active, COLLECTION, cursors), reply, True),
        (CountedReader(active, COLLECTION, cursors), b"", True),
        (CountedReader(active, COLLECTION, cursors, more_of=7), reply, True),
        (CountedReader(active, COLLECTION, cursors, more_of=7), b"", False),
    ):
        reader.enter()
        reader.leave(tail)
        assert (cursors.backend_namespace(7) == COLLECTION) is open_cursor
