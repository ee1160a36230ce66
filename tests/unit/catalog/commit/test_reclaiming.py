"""What may have been executed elsewhere is asked about, and looked up, before it is sent (W102)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import bson
import pytest

from catalog.commit.reclaiming import Contested, Reclaiming
from catalog.commit.restart_dedup import RestartDedup
from catalog.commit.statements import LOG_BYTES, TRANSACTION_TOO_OLD, Statement, StatementLog
from catalog.errors import BackendUnavailable, CommandError
from catalog.identity import NOBODY
from catalog.kernel import Measurement, parse_measurement
from catalog.ports import Acknowledgement, WriteConcern
from tests.support.catalog_parts import ManualClock, RememberingWriter, virtual
from tests.support.earlier_rows import EarlierRows
from tests.support.ownership import WINDOW_SECONDS, OwnershipDouble

BUSY_ELSEWHERE = BackendUnavailable("another proxy may be executing this statement", code=89)


def document(number: int) -> bytes:
    return bson.encode({"_id": number, "t": bson.DatetimeMS(1000 * number), "m": number})


def row(number: int) -> Measurement:
    return parse_measurement(document(number), b"t", b"m")


class Bench:
    """Statements of this process, and rows that are stored."""

    def __init__(self, *stored: bytes, limit_bytes: int = LOG_BYTES) -> None:
        self.log, self.rows = StatementLog(limit_bytes), EarlierRows(*stored)
        self.ownership = OwnershipDouble(self.log)
        self.tasks: list[asyncio.Task[None]] = []
        dedup = RestartDedup(self.rows, ManualClock(), WINDOW_SECONDS, 1.0, self._spawn)
        self.reclaiming = Reclaiming(dedup)
        self.reclaiming.ownership = self.ownership
        self.writers: dict[Statement, RememberingWriter] = {}

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def begin(self, number: int, statement: int = 0) -> Statement:
        """A statement of a session of its own for each number."""
        begun = Statement(self.log.transaction((b"%d" % number, NOBODY), number), statement)
        writer = self.writers[begun] = RememberingWriter()
        begun.wait(writer, 0, 1e9)
        return begun

    def is_needed(self, *statements: Statement) -> bool:
        return self.reclaiming.is_needed(statements)

    async def reclaim(self, *statements: Statement) -> Contested | None:
        rows = [(each, row(each.transaction.number)) for each in statements]
        return await self.reclaiming.reclaim(virtual(), WriteConcern(), rows)

    def codes(self, statement: Statement) -> dict[int, int | None]:
        return self.writers[statement].codes


async def test_what_is_not_contested_needs_nothing() -> None:
    bench = Bench()
    before = bench.begin(1)
    assert not bench.is_needed(before)
    bench.ownership.contest()
    after = bench.begin(2)
    assert bench.is_needed(before)
    assert not bench.is_needed(after)
    assert not bench.is_needed(RememberingWriter())  # type: ignore[arg-type]
    bench.reclaiming.ownership = None
    assert not bench.is_needed(before)


async def test_what_nobody_has_executed_may_be_sent() -> None:
    bench = Bench()
    one, other = bench.begin(1), bench.begin(2)
    bench.ownership.contest()
    assert await bench.reclaim(one, other) is None
    assert sorted(bench.ownership.asked) == [1, 2]
    assert not bench.is_needed(one, other)
    assert bench.codes(one) == bench.codes(other) == {}


async def test_a_transaction_is_asked_about_once() -> None:
    bench = Bench()
    statements = [bench.begin(1, number) for number in range(3)]
    bench.ownership.contest()
    assert await bench.reclaiming.reclaim(virtual(), WriteConcern(), [(each, None) for each in statements]) is None
    assert bench.ownership.asked == [1]
    assert not bench.is_needed(*statements)


async def test_what_another_has_executed_is_not_sent_and_answered() -> None:
    bench = Bench()
    one, other = bench.begin(1), bench.begin(2)
    bench.ownership.contest()
    bench.ownership.written[1] = (0, 1)
    contested = await bench.reclaim(one, other)
    assert contested is not None
    assert (contested.executed, contested.refused, contested.is_open) == ([one], {}, False)
    assert bench.codes(one) == {0: None}
    assert not bench.is_needed(other)


async def test_what_a_process_has_executed_that_has_gone_is_found_in_the_rows() -> None:
    bench = Bench(document(1))
    one = bench.begin(1)
    bench.ownership.contest()
    contested = await bench.reclaim(one)
    assert contested is not None
    assert contested.executed == [one]
    assert bench.codes(one) == {0: None}
    assert 0 in one.transaction.written


async def test_a_lost_statement_is_not_sent() -> None:
    bench = Bench()
    one = bench.begin(1)
    bench.ownership.contest()
    one.transaction.learn([], [(0, 1)], is_native=False, is_sought=False)
    contested = await bench.reclaim(one)
    assert contested is not None
    assert contested.refused[one].code == 89
    assert not contested.is_open
    assert bench.is_needed(one)


@pytest.mark.parametrize("case", ["a busy one", "the backend"])
async def test_who_cannot_tell_now_may_tell_later(case: str) -> None:
    bench = Bench()
    one = bench.begin(1)
    bench.ownership.contest()
    if case == "a busy one":
        bench.ownership.answers[1] = BUSY_ELSEWHERE
    else:
        bench.rows.fails = True
    contested = await bench.reclaim(one)
    assert contested is not None
    assert contested.is_open
    assert contested.refused[one].code in (89, 6)
    assert bench.is_needed(one)
    bench.ownership.answers.clear()
    bench.rows.fails = False
    assert await bench.reclaim(one) is None


async def test_what_its_client_has_left_behind_is_not_sent() -> None:
    """The client has gone on with the session, knowing how this statement has ended elsewhere."""
    bench = Bench()
    one = bench.begin(1)
    bench.ownership.contest()
    bench.log.transaction(one.transaction.tenure.session, 5)
    contested = await bench.reclaim(one)
    assert contested is not None
    assert contested.refused[one].code == TRANSACTION_TOO_OLD
    assert not contested.is_open


async def test_what_the_record_had_no_room_for_is_not_sent() -> None:
    bench = Bench(limit_bytes=1)
    one = bench.begin(1)
    bench.ownership.contest()
    bench.begin(2)
    assert one.transaction.is_forgotten()
    contested = await bench.reclaim(one)
    assert contested is not None
    assert contested.refused[one].code == 89
    assert not contested.is_open


async def test_after_too_long_a_time_the_rows_do_not_tell() -> None:
    """Of others that have gone meanwhile, nobody knows what they have executed."""
    bench = Bench()
    one = bench.begin(1)
    bench.ownership.contest()
    bench.ownership.now += WINDOW_SECONDS + 1
    contested = await bench.reclaim(one)
    assert contested is not None
    assert contested.refused[one].code == 89
    assert not contested.is_open


async def test_what_is_contested_again_meanwhile_is_asked_about_again() -> None:
    bench = Bench()
    one = bench.begin(1)
    bench.ownership.contest()
    bench.ownership.before_answer = bench.ownership.contest
    assert await bench.reclaim(one) is None
    assert bench.is_needed(one)
    bench.ownership.before_answer = lambda: None
    assert await bench.reclaim(one) is None
    assert not bench.is_needed(one)


async def test_a_slow_look_up_ends_the_matter() -> None:
    """While other processes cannot reach this one, what it took a while ago is contested all the time."""
    bench = Bench()
    one = bench.begin(1)
    bench.ownership.contest()
    stored_rows = bench.rows.stored_rows

    async def slow(*asked: Any) -> Any:
        bench.ownership.now += 0.7
        bench.log.contest_all(bench.ownership.now, bench.ownership.now - 0.5)
        return await stored_rows(*asked)

    bench.rows.stored_rows = slow  # type: ignore[method-assign]
    assert await bench.reclaim(one) is None
    assert not bench.is_needed(one)
    bench.log.contest_all(bench.ownership.now, bench.ownership.now - 0.5)
    assert not bench.is_needed(one)
    bench.ownership.now += 0.6
    bench.log.contest_all(bench.ownership.now, bench.ownership.now - 0.5)
    assert bench.is_needed(one)


async def test_a_cancelled_commit_is_told_nothing() -> None:
    bench = Bench()
    one = bench.begin(1)
    bench.ownership.contest()
    later: list[Any] = []
    bench.ownership.ask = lambda client, number, go_on: later.append(go_on)  # type: ignore[method-assign]
    task = asyncio.get_running_loop().create_task(bench.reclaim(one))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    (go_on,) = later
    go_on(None)
    assert bench.is_needed(one)


async def test_an_unmet_write_concern_is_passed_on() -> None:
    bench = Bench()
    one = bench.begin(1)
    bench.ownership.contest()
    acknowledgement = Acknowledgement({"code": 64, "errmsg": "timed out"})
    bench.ownership.written[1] = (0, 1)
    one.transaction.unmet_write_concern = acknowledgement
    assert await bench.reclaim(one) is not None
    assert bench.writers[one].acknowledgements == [acknowledgement]


def test_the_error_is_one_that_drivers_retry() -> None:
    error: CommandError = Contested((), {}, is_open=True)
    assert (error.code, error.labels) == (89, ("RetryableWriteError",))
