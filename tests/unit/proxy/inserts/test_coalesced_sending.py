"""A coalesced command with statements that others may have executed is not sent as it is (W102, W127)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import bson
import pytest

from catalog.commit.committer import CommitterOptions
from catalog.commit.precedence import Precedence
from catalog.commit.reclaiming import Reclaiming
from catalog.commit.restart_dedup import RestartDedup
from catalog.commit.statements import Statement, StatementLog
from catalog.errors import BackendUnavailable, Fenced, Withheld
from catalog.ports import Rejected, Unknown
from proxy.inserts.coalescing import Coalescer
from tests.support.catalog_parts import KEY, ManualClock, RememberingWriter, virtual
from tests.support.committer_bench import LoopClock
from tests.support.earlier_rows import EarlierRows
from tests.support.eventually import eventually
from tests.support.native_store import NativeStoreDouble
from tests.support.ownership import WINDOW_SECONDS, OwnershipDouble

LOST = Unknown(BackendUnavailable("connection closed"))


def document(number: int) -> bytes:
    return bson.encode({"_id": number, "t": bson.DatetimeMS(1000 * number), "m": number})


class Bench:
    """A coalescer with other processes, over a scripted store."""

    def __init__(self, *answers: Any, stored: tuple[bytes, ...] = (), patience_seconds: float = 30.0) -> None:
        self.log, self.rows = StatementLog(), EarlierRows(*stored)
        self.store = NativeStoreDouble(*answers, repeatable=True)
        self.ownership = OwnershipDouble(self.log)
        self.tasks: list[asyncio.Task[None]] = []
        self.reclaiming = reclaiming = Reclaiming(
            RestartDedup(self.rows, ManualClock(), WINDOW_SECONDS, 1.0, self._spawn)
        )
        reclaiming.ownership = self.ownership
        options = CommitterOptions(server_selection_timeout_seconds=patience_seconds)
        self.reported: list[BaseException] = []
        self.coalescer = Coalescer(
            self.store, LoopClock(), lambda: options, self.reported.append, Precedence(LoopClock()), self.reclaiming
        )
        self.hears: dict[int, RememberingWriter] = {}

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def insert(self, *numbers: int, **other: RememberingWriter) -> None:
        """One statement for each number, of a session of its own; ``other``: a writer that is not retryable."""
        for number in numbers:
            statement = Statement(self.log.transaction((b"%d" % number, KEY.identity), number), 0)
            writer = self.hears[number] = RememberingWriter()
            statement.wait(writer, 0, asyncio.get_running_loop().time() + 30)
            self.coalescer.add(virtual(), KEY, statement, 0, document(number))
        for writer in other.values():
            self.coalescer.add(virtual(), KEY, writer, 0, document(99))

    async def in_progress(self) -> None:
        """The command has been sent; its reply is held back until ``rest``."""
        self.store.gate.clear()
        await eventually(lambda: self.store.sent)

    async def rest(self) -> None:
        self.store.gate.set()
        async with asyncio.timeout(20):
            assert await self.coalescer.drain()
        assert self.reported == []

    def codes(self, number: int) -> dict[int, int | None]:
        return self.hears[number].codes


async def test_what_is_contested_before_it_is_sent_is_asked_about_first() -> None:
    bench = Bench()
    other = RememberingWriter()
    bench.insert(1, 2, other=other)
    bench.ownership.contest()
    bench.ownership.written[1] = (0, 1)
    await bench.rest()
    assert bench.store.sent == [[document(2), document(99)]]
    assert bench.codes(1) == bench.codes(2) == other.codes == {0: None}


async def test_if_all_was_executed_elsewhere_nothing_is_sent() -> None:
    bench = Bench(stored=(document(1), document(2)))
    bench.insert(1, 2)
    bench.ownership.contest()
    await bench.rest()
    assert bench.store.sent == []
    assert bench.codes(1) == bench.codes(2) == {0: None}
    assert bench.store.free == [1]


async def test_what_cannot_be_had_back_fails_alone() -> None:
    bench = Bench()
    bench.insert(1, 2)
    bench.ownership.contest()
    bench.ownership.answers[1] = BackendUnavailable("busy", code=89)
    await bench.rest()
    assert bench.store.sent == [[document(2)]]
    assert (bench.codes(1), bench.codes(2)) == ({0: 89}, {0: None})


async def test_after_a_lost_reply_the_same_command_is_sent_again_once_the_sessions_are_back() -> None:
    bench = Bench(LOST)
    bench.insert(1, 2)
    await bench.in_progress()
    bench.ownership.contest()
    await bench.rest()
    assert bench.store.sent == [[document(1), document(2)]] * 2
    assert bench.store.numbers == [1, 1]
    assert sorted(bench.ownership.asked) == [1, 2]
    assert bench.codes(1) == bench.codes(2) == {0: None}


async def test_after_a_lost_reply_a_command_is_not_sent_again_with_what_was_executed_elsewhere() -> None:
    """Of the others in it, the outcome is lost: only the whole command tells what became of them."""
    bench = Bench(LOST)
    other = RememberingWriter()
    bench.insert(1, 2, other=other)
    await bench.in_progress()
    bench.ownership.contest()
    bench.ownership.written[1] = (0, 1)
    await bench.rest()
    assert len(bench.store.sent) == 1
    assert (bench.codes(1), bench.codes(2), other.codes) == ({0: None}, {0: 89}, {0: 89})
    assert bench.log.transaction((b"2", KEY.identity), 2).lost.runs == 1


async def test_a_lost_reply_is_pursued_while_nobody_can_tell() -> None:
    bench = Bench(LOST, patience_seconds=0.05)
    bench.insert(1)
    await bench.in_progress()
    bench.ownership.contest()
    bench.ownership.answers[1] = BackendUnavailable("busy", code=89)
    bench.store.gate.set()
    await eventually(lambda: len(bench.ownership.asked) > 2)
    assert len(bench.store.sent) == 1
    assert bench.codes(1) == {}
    bench.ownership.answers.clear()
    await bench.rest()
    assert bench.store.numbers == [1, 1]
    assert bench.codes(1) == {0: None}


@pytest.mark.parametrize("number", [1, 2])
async def test_documents_that_are_no_measurements_are_asked_about_too(number: int) -> None:
    bench = Bench()
    statement = Statement(bench.log.transaction((b"s", KEY.identity), number), 0)
    bench.hears[1] = RememberingWriter()
    statement.wait(bench.hears[1], 0, 1e9)
    bench.coalescer.add(virtual(), KEY, statement, 0, bson.encode({"m": 1}))
    bench.ownership.contest()
    await bench.rest()
    assert bench.ownership.asked == [number]
    assert len(bench.store.sent) == 1


async def test_a_command_that_a_fence_has_kept_out_is_sent_again_under_another_number() -> None:
    """Another process has taken over what this one had sent, and has executed one of the statements."""
    bench = Bench(Rejected(Fenced()))
    bench.insert(1, 2)
    await bench.in_progress()
    bench.ownership.contest()
    bench.ownership.written[1] = (0, 1)
    await bench.rest()
    assert bench.store.sent == [[document(1), document(2)], [document(2)]]
    assert bench.store.numbers == [1, 2]
    assert bench.store.free == [1, 2]
    assert bench.codes(1) == bench.codes(2) == {0: None}


async def test_a_command_whose_session_has_no_fence_waits_for_another_session() -> None:
    """Or for the end of the uncertainty, if a copy of it was sent before."""
    withheld = Rejected(Withheld())
    bench = Bench(withheld, withheld, LOST, withheld, withheld)
    bench.insert(1)
    await bench.rest()
    assert bench.store.sent == [[document(1)]] * 6
    assert bench.store.numbers == [1, 2, 3, 3, 3, 3]
    assert bench.store.free == [1, 2, 3]
    assert bench.ownership.asked == []
    assert bench.codes(1) == {0: None}


@pytest.mark.parametrize("can_ask", [True, False])
async def test_after_a_fence_nobody_can_tell_what_became_of_a_copy(can_ask: bool) -> None:
    bench = Bench(LOST, Rejected(Fenced()))
    bench.reclaiming.ownership = bench.ownership if can_ask else None
    bench.insert(1)
    await bench.rest()
    assert len(bench.store.sent) == 2
    assert bench.codes(1) == {0: 89}
    assert bench.log.transaction((b"1", KEY.identity), 1).lost.runs == 1


async def test_without_anybody_to_ask_what_was_taken_over_fails_so_that_drivers_send_it_again() -> None:
    bench = Bench(Rejected(Fenced()))
    bench.reclaiming.ownership = None
    bench.insert(1)
    await bench.rest()
    assert len(bench.store.sent) == 1
    assert bench.codes(1) == {0: 89}
