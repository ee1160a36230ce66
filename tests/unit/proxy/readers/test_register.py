"""Joins find a moment without readers, and readers wait for it only shortly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import bson
import pytest
from bson import Int64

from catalog.namespaces import Namespace
from proxy.readers.active_readers import cursor_left_by
from proxy.readers.register import WAIT_FOR_READERS_SECONDS, ReaderRegister
from proxy.reads.cursor_names import CursorNames
from proxy.request.command import Command, parse_command
from proxy.wire.message import Message
from tests.support.wire import op_msg as request

COLLECTION = Namespace("d", "x")


async def test_a_database_without_readers_is_free_at_once() -> None:
    register = ReaderRegister(lambda _: False)
    async with register.kept_out(COLLECTION) as alone:
        assert alone
        assert register.active.keeps_out("d")
        assert not register.active.keeps_out("other")
    assert not register.active.keeps_out("d")


async def test_readers_under_way_are_waited_for() -> None:
    register = ReaderRegister(lambda _: False)
    register.active.enter("d")
    asyncio.get_running_loop().call_soon(register.active.leave, "d")
    async with register.kept_out(COLLECTION) as alone:
        assert alone


async def test_a_reader_that_stays_is_not_waited_for_long() -> None:
    register = ReaderRegister(lambda _: False)
    register.active.enter("d")
    async with register.kept_out(COLLECTION) as alone:
        assert not alone
    register.active.leave("d")
    async with register.kept_out(COLLECTION) as alone:
        assert not alone, "others are left in peace for a while"
    await asyncio.sleep(2 * WAIT_FOR_READERS_SECONDS)
    async with register.kept_out(COLLECTION) as alone:
        assert alone


async def test_new_readers_wait_for_the_end() -> None:
    register = ReaderRegister(lambda _: False)
    async with register.kept_out(COLLECTION):
        waiting = asyncio.ensure_future(register.active.admitted("d"))
        await asyncio.sleep(0)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 20)


async def test_a_reader_waits_for_one_join_and_not_for_those_that_follow() -> None:
    """Joins that follow one another without a pause kept readers waiting for all of them."""
    register = ReaderRegister(lambda _: False)
    joins: list[int] = []
    waited_for: list[int] = []

    async def read() -> None:
        reader = register.of_rewritten(COLLECTION)
        await reader.admitted()
        reader.enter()
        waited_for.append(len(joins))
        await asyncio.sleep(0.001)
        reader.leave(b"")

    for number in range(5):
        async with register.kept_out(COLLECTION) as alone:
            assert alone
            readers = [asyncio.ensure_future(read()) for _ in range(3)]
            await asyncio.sleep(0.001)
            joins.append(number)
    await asyncio.gather(*readers)
    assert waited_for == [each for each in range(1, 6) for _ in range(3)]


async def test_a_waiting_reader_that_is_cancelled_leaves_the_others_waiting() -> None:
    """Its client left, or its deadline passed: the join goes on, and so does everybody else."""
    register = ReaderRegister(lambda _: False)
    async with register.kept_out(COLLECTION):
        given_up, patient = (asyncio.ensure_future(register.active.admitted("d")) for _ in range(2))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        assert (given_up.cancelled(), patient.done()) == (True, False)
    await asyncio.wait_for(patient, 20)


async def test_open_cursors_are_in_the_way_of_their_database() -> None:
    register = ReaderRegister(lambda database: database == "d")
    async with register.kept_out(COLLECTION) as alone:
        assert not alone
    async with register.kept_out(Namespace("other", "x")) as alone:
        assert alone
    register.close()
    async with register.kept_out(COLLECTION) as alone:
        assert alone


def command(body: dict[str, Any]) -> Command:
    raw = request({**body, "$db": "d"}, 1)
    return parse_command(Message.from_bytes(raw))


def reply(cursor_id: int, batch: str = "firstBatch", **more: Any) -> bytes:
    return bson.encode({"cursor": {batch: [{"x": "y" * 5000}], "id": Int64(cursor_id), "ns": "d.v"}, "ok": 1.0, **more})


def relay(register: ReaderRegister, read: Command, tail: bytes) -> None:
    """As an exchange does."""
    reader = register.of_relayed(read)
    assert reader is not None
    assert reader.leaves_cursor
    reader.enter()
    reader.leave(tail)


READS = [
    {"find": "view"},
    {"aggregate": "plain", "pipeline": [{"$lookup": {"from": "x", "as": "y", "pipeline": []}}], "cursor": {}},
    {"count": "view"},
    {"find": "system.buckets.x"},
    {"delete": "system.buckets.x", "deletes": []},
]
OTHERS = [
    {"insert": "plain", "documents": []},
    {"find": "capped", "tailable": True, "awaitData": True},
    {"aggregate": "plain", "pipeline": [{"$changeStream": {}}], "cursor": {}},
    {"getMore": Int64(9), "collection": "plain"},
    {"ping": 1},
]


@pytest.mark.parametrize("body", READS, ids=str)
def test_what_may_read_buckets_counts(body: dict[str, Any]) -> None:
    assert ReaderRegister(lambda _: False).of_relayed(command(body)) is not None


@pytest.mark.parametrize("body", OTHERS, ids=str)
def test_what_reads_no_buckets_or_waits_for_ever_does_not_count(body: dict[str, Any]) -> None:
    assert ReaderRegister(lambda _: False).of_relayed(command(body)) is None


@pytest.mark.parametrize("end", ["exhausted", "killed", "not found"])
async def test_relayed_cursors_are_in_the_way_until_they_end(end: str) -> None:
    register = ReaderRegister(lambda _: False)
    more = command({"getMore": Int64(77), "collection": "view"})
    relay(register, command({"find": "view"}), reply(77)[-2048:])
    relay(register, more, reply(77, "nextBatch", operationTime=bson.Timestamp(1, 1))[-2048:])
    async with register.kept_out(COLLECTION) as alone:
        assert not alone
    if end == "killed":
        assert register.of_relayed(command({"killCursors": "view", "cursors": [Int64(77)]})) is None
    else:
        tail = reply(0, "nextBatch") if end == "exhausted" else bson.encode({"ok": 0.0, "code": 43})
        relay(register, more, tail[-2048:])
    async with register.kept_out(COLLECTION) as alone:
        assert alone


async def test_translated_cursors_that_are_killed_are_in_nobodys_way() -> None:
    """Yet they keep their name, for the backend may refuse to kill them."""
    cursors = CursorNames()
    cursors.opened(77, Namespace("d", "system.buckets.x"))
    register = ReaderRegister(cursors.is_open_in, cursors.killed)
    async with register.kept_out(COLLECTION) as alone:
        assert not alone
    register.of_relayed(command({"killCursors": "x", "cursors": [Int64(77), Int64(78)]}))
    async with register.kept_out(COLLECTION) as alone:
        assert alone
    assert cursors.backend_namespace(77) == Namespace("d", "system.buckets.x")


def test_the_id_of_a_cursor_is_found_behind_its_batch() -> None:
    assert cursor_left_by(reply(2**62)[-2048:]) == 2**62
    assert cursor_left_by(reply(0)) == 0
    assert cursor_left_by(b"") == 0


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_readers_past_this_process_are_asked_for_when_its_own_are_gone(elsewhere: bool) -> None:
    asked: list[str] = []

    class Others:
        lasts = True

        @asynccontextmanager
        async def kept_out(self, database: str) -> AsyncIterator[bool]:
            assert register.active.keeps_out(database), "no new reader may slip in"
            asked.append(database)
            yield not elsewhere

    others = Others()
    register = ReaderRegister(lambda _: False, elsewhere=others)
    assert register.still_kept_out
    others.lasts = False
    assert not register.still_kept_out
    async with register.kept_out(COLLECTION) as alone:
        assert alone is not elsewhere
    assert asked == ["d"]
    register.active.enter("d")
    async with register.kept_out(COLLECTION) as alone:
        assert not alone
    assert asked == ["d"]


@pytest.mark.parametrize("cursors", [5, "x", None, {"0": Int64(77)}, [{"a": 1}, "x", [1], Int64(77)]], ids=str)
def test_cursors_of_any_kind_may_be_named_to_be_killed(cursors: Any) -> None:
    """The backend says what is wrong with them."""
    killed: list[int] = []
    register = ReaderRegister(lambda _: False, killed.append)
    assert register.of_relayed(command({"killCursors": "view", "cursors": cursors})) is None
    assert killed == ([77] if isinstance(cursors, list) else [])


async def test_reader_is_one_of_its_database_from_enter_to_leave() -> None:
    register = ReaderRegister(lambda _: False)
    reader = register.of_rewritten(COLLECTION)
    assert not reader.leaves_cursor
    reader.enter()
    reader.enter()
    asyncio.get_running_loop().call_soon(reader.leave, b"")
    asyncio.get_running_loop().call_soon(reader.leave, b"")
    async with register.kept_out(COLLECTION) as alone:
        assert alone
        assert reader.is_kept_out
        waiting = asyncio.ensure_future(reader.admitted())
        await asyncio.sleep(0)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 20)
    assert not reader.is_kept_out


async def test_joins_of_this_process_and_of_others_take_turns() -> None:
    register = ReaderRegister(lambda _: False)
    order: list[str] = []

    async def join(name: str) -> None:
        async with register.kept_out_here("d") as alone:
            assert alone
            order.append(name)
            await asyncio.sleep(0.01)
            order.append(name)

    await asyncio.gather(join("a"), join("b"), join("c"))
    assert order == ["a", "a", "b", "b", "c", "c"]
    async with register.kept_out_here("d"), register.kept_out_here("other") as alone:
        assert alone, "each database has its own turns"
    async with register.kept_out_here("d"), register.kept_out(COLLECTION) as alone:
        assert not alone, "another join takes long"
    assert not register.active.keeps_out("d")
    async with register.kept_out(COLLECTION) as alone:
        assert alone
