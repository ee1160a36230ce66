"""Readers are counted by database; ``test_register`` shows joins and readers together."""

from __future__ import annotations

import asyncio

from catalog.namespaces import Namespace
from proxy.readers.active_readers import ActiveReaders, CountedReader

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
    await asyncio.wait_for(waiting, 1)
    assert not active.keeps_out("d")


def test_the_end_of_a_reply_is_shown_for_the_cursor_that_it_may_leave() -> None:
    active, seen = ActiveReaders(), list[tuple[int, bytes]]()
    for reader in (
        CountedReader(active, COLLECTION, lambda reader, tail: seen.append((reader.more_of, tail))),
        CountedReader(
            active,
            COLLECTION,
            lambda reader, tail: seen.append((reader.more_of, tail)),
            leaves_cursor=True,
            more_of=5,
        ),
    ):
        reader.enter()
        reader.leave(b"tail")
    assert seen == [(5, b"tail")]
