"""What is found of an insert is recorded; if nothing is, the backend gets it. Copies of it wait for that."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import bson
import pytest

from catalog.commit.restart_dedup import Found, RestartDedup
from catalog.commit.statements import StatementLog
from catalog.errors import CommandError
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.slices import Slices
from proxy.inserts.sought_insert import SoughtInsert
from proxy.inserts.staging import LARGE_BYTES
from tests.support.catalog_parts import ManualClock, RememberingWriter, virtual
from tests.support.earlier_rows import EarlierRows
from tests.support.sessions import session

NO_TIME = bson.encode({"m": 1})


def document(number: int, text: str = "") -> bytes:
    return bson.encode({"_id": number, "t": bson.DatetimeMS(1000 * number), "m": number, "text": text})


class Bench:
    """An insert of some documents, of which others are stored."""

    def __init__(self, *documents: bytes, stored: tuple[bytes, ...] = ()) -> None:
        self.log = StatementLog()
        self.transaction = self.log.transaction((b"s", session().identity), 4)
        self.rows = EarlierRows(*stored)
        self.told: list[Found | CommandError] = []
        self._tasks: list[asyncio.Task[None]] = []
        dedup = RestartDedup(self.rows, ManualClock(), 60.0, 1.0, self._spawn)
        insert = InsertCommand(documents, True, b"", b"s", 4, range(len(documents)), True, 0)
        self._sought = SoughtInsert(insert, virtual(), self.transaction, dedup, self.told.append)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    def begin(self) -> None:
        Slices().start(self._sought.steps(), lambda: None)

    async def end(self) -> Found | CommandError:
        async with asyncio.timeout(20):
            while not self.told:  # noqa: ASYNC110 - a thread may parse
                await asyncio.sleep(0)
        (told,) = self.told
        return told

    def copy(self, number: int) -> RememberingWriter:
        """What a copy of the insert hears of this statement."""
        writer = RememberingWriter()
        self.transaction.under_way[number].wait(writer, 7, 1e9)
        return writer


async def test_w102_if_nothing_is_stored_the_backend_gets_it() -> None:
    bench = Bench(document(1), NO_TIME, document(2))
    bench.begin()
    assert bench.transaction.is_under_way
    assert not bench.transaction.is_untried
    # What is no measurement is stored nowhere, and is not looked for.
    assert sorted(bench.transaction.under_way) == [0, 2]
    copy = bench.copy(2)
    assert await bench.end() == Found(frozenset())
    assert bench.transaction.is_native
    assert not bench.transaction.is_under_way
    # Its driver sends it again, and the backend tells.
    assert copy.codes == {7: 89}
    error = copy.told[7]
    assert error is not None
    assert "RetryableWriteError" in error.labels


async def test_w102_what_is_found_is_recorded_and_the_rest_is_not() -> None:
    bench = Bench(document(1), NO_TIME, document(2), stored=(document(2),))
    bench.begin()
    copies = [bench.copy(number) for number in (0, 2)]
    told = await bench.end()
    assert isinstance(told, Found)
    assert told.written == {1}
    assert bench.transaction.written.spans() == [(2, 3)]
    assert not bench.transaction.is_native
    assert [each.codes for each in copies] == [{7: 89}, {7: None}]


async def test_w102_if_nobody_can_tell_nothing_is_executed() -> None:
    bench = Bench(document(1))
    bench.rows.fails = True
    bench.begin()
    copy = bench.copy(0)
    told = await bench.end()
    assert isinstance(told, CommandError)
    assert told.code == 6
    assert copy.codes == {7: 6}
    assert bench.transaction.is_untried


async def test_w102_a_session_that_was_taken_meanwhile_is_left_alone() -> None:
    bench = Bench(document(1), stored=(document(1),))
    bench.begin()
    bench.log.contest_all(1.0)
    told = await bench.end()
    assert isinstance(told, CommandError)
    assert told.code == 89
    assert bench.transaction.is_untried


@pytest.mark.parametrize("documents", [(NO_TIME,), (document(1, "x" * LARGE_BYTES), NO_TIME)])
async def test_documents_of_any_size_and_kind(documents: tuple[bytes, ...]) -> None:
    bench = Bench(*documents)
    bench.begin()
    assert await bench.end() == Found(frozenset())
    assert bench.transaction.is_native


async def test_many_documents_are_parsed_in_steps() -> None:
    bench = Bench(*(document(number) for number in range(1000)), stored=(document(999),))
    bench.begin()
    told = await bench.end()
    assert isinstance(told, Found)
    assert told.written == {999}
