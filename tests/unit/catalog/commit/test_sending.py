"""A commit with statements that others may have executed is not sent as it is (W102)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from bson import ObjectId

from catalog.bson.codec import decode, encode
from catalog.buckets.write_batch import WriteBatch, Writer
from catalog.commit.reclaiming import Contested, Reclaiming
from catalog.commit.restart_dedup import RestartDedup
from catalog.commit.round import PreparedWrite
from catalog.commit.sending import WITHHELD_PAUSE_SECONDS, Commit
from catalog.commit.statements import NETWORK_TIMEOUT, Statement, StatementLog
from catalog.errors import BackendUnavailable, CommandError, Fenced, Withheld
from catalog.identity import NOBODY
from catalog.ports import Rejected, WriteConcern
from tests.support.catalog_parts import CatalogBench, RememberingWriter, measurement
from tests.support.outcome_bench import LOST, NONE_MATCHED, PATIENCE_SECONDS, OutcomeBench
from tests.support.ownership import WINDOW_SECONDS, OwnershipDouble


class Bench(OutcomeBench):
    """With other processes."""

    def __init__(self, *answers: Any) -> None:
        self.log = StatementLog()
        self.ownership = OwnershipDouble(self.log)
        self.tasks: list[asyncio.Task[None]] = []
        self.hears: dict[int, RememberingWriter] = {}
        super().__init__(*answers)

    def _reclaiming(self) -> Reclaiming:
        """As the committer's: rows are looked up in the same store."""
        reclaiming = Reclaiming(RestartDedup(self.store, self.clock, WINDOW_SECONDS, 1.0, self._spawn))
        reclaiming.ownership = self.ownership
        return reclaiming

    def _spawn(self, work: Any) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def statement(self, number: int) -> Statement:
        statement = Statement(self.log.transaction((b"%d" % number, NOBODY), number), 0)
        self.hears[number] = RememberingWriter()
        statement.wait(self.hears[number], 0, 0.0)
        return statement

    def shared(self, *writers: Writer) -> PreparedWrite:
        """One bucket with a row of each."""
        for number, writer in enumerate(writers):
            batches = self.stage(measurement(number, _id=ObjectId()), writer=writer)  # type: ignore[arg-type]
        (batch,) = batches
        batch.claim()
        statement = self.catalog.prepare(batch)
        assert statement is not None
        return PreparedWrite(batch, statement)

    def written(self, number: int) -> dict[int, int | None]:
        return self.hears[number].codes


def then(*steps: Callable[[], object], outcome: Any = LOST) -> Callable[[Sequence[bytes]], Any]:
    """What happens while a command is in progress, and its outcome."""

    def answer(_: Sequence[bytes]) -> Any:
        for step in steps:
            step()
        return outcome

    return answer


async def test_what_is_not_contested_is_sent() -> None:
    bench = Bench()
    await bench.commit_writes(bench.shared(bench.statement(1)))
    assert [name for name, _, _ in bench.store.sent] == ["insert"]
    assert bench.ownership.asked == []
    assert bench.written(1) == {0: None}


async def test_what_is_contested_is_sent_once_it_is_this_process_s_again() -> None:
    bench = Bench()
    write = bench.shared(bench.statement(1), bench.statement(2))
    bench.ownership.contest()
    assert not bench.outcomes.begin(bench.commit_of(write), lambda outcome: None)
    await bench.commit_writes(write)
    assert sorted(bench.ownership.asked) == [1, 2]
    assert len(bench.store.sent) == 1
    assert bench.written(1) == bench.written(2) == {0: None}


async def test_what_was_executed_elsewhere_is_left_out_and_the_rest_is_placed_again() -> None:
    bench = Bench()
    other = RememberingWriter()
    write = bench.shared(bench.statement(1), bench.statement(2), other)
    bench.ownership.contest()
    bench.ownership.written[1] = (0, 1)
    await bench.commit_writes(write)
    assert bench.store.sent == []
    assert bench.written(1) == {0: None}
    (batch,) = filter(WriteBatch.claim, bench.catalog.take_unclaimed())
    again = bench.catalog.prepare(batch)
    assert again is not None
    await bench.commit_writes(PreparedWrite(batch, again))
    assert len(batch.measurements) == 2
    assert bench.written(2) == other.codes == {0: None}


async def test_what_cannot_be_had_back_fails_alone() -> None:
    bench = Bench()
    other = RememberingWriter()
    write = bench.shared(bench.statement(1), other)
    bench.ownership.contest()
    bench.ownership.answers[1] = BackendUnavailable("busy", code=89)
    await bench.commit_writes(write)
    assert (bench.store.sent, bench.written(1), other.codes) == ([], {0: 89}, {})
    (batch,) = filter(WriteBatch.claim, bench.catalog.take_unclaimed())
    assert [writer for _, writer, _ in batch.rows()] == [other]


async def test_what_is_contested_while_it_waits_for_a_connection_is_not_sent() -> None:
    bench = Bench()
    write = bench.shared(bench.statement(1))
    insert = bench.store.insert

    async def waits(*arguments: Any) -> Any:
        if not bench.ownership.asked:
            bench.ownership.contest()
        return await insert(*arguments)

    bench.store.insert = waits  # type: ignore[method-assign]
    await bench.commit_writes(write)
    assert bench.ownership.asked == [1]
    assert len(bench.store.sent) == 1
    assert bench.written(1) == {0: None}


async def test_what_is_contested_all_the_time_fails_at_the_deadline() -> None:
    bench = Bench()
    write = bench.shared(bench.statement(1))

    async def waits(*arguments: Any) -> Any:
        bench.ownership.contest()
        bench.clock.now += PATIENCE_SECONDS
        return await insert(*arguments)

    insert = bench.store.insert
    bench.store.insert = waits  # type: ignore[method-assign]
    await bench.commit_writes(write)
    assert bench.store.sent == []
    assert bench.written(1) == {0: 89}


async def test_a_lost_reply_is_not_asked_for_again_before_the_session_is_back() -> None:
    bench = Bench()
    bench.store.answers.append(then(bench.ownership.contest))
    write = bench.shared(bench.statement(1))
    await bench.commit_writes(write)
    assert bench.ownership.asked == [1]
    assert len(bench.store.sent) == 2
    assert bench.written(1) == {0: None}


@pytest.mark.parametrize("is_stored", [False, True])
async def test_after_a_lost_reply_what_was_executed_elsewhere_is_not_sent_again(is_stored: bool) -> None:
    """The stored bucket tells what became of the first copy. If it is not there, it may still come."""
    bench = Bench()
    bench.store.answers.append(then(bench.ownership.contest))
    other = RememberingWriter()
    write = bench.shared(bench.statement(1), bench.statement(2), other)
    bench.ownership.written[1] = (0, 1)
    if is_stored:
        bench.store.documents[write.batch.stored_id] = bench.as_stored(write)
    await bench.commit_writes(write)
    assert len(bench.store.sent) == 1
    assert bench.written(1) == {0: None}
    assert bench.written(2) == other.codes == {0: None if is_stored else 89}
    assert bool(bench.log.transaction((b"2", NOBODY), 2).lost.runs) is not is_stored


async def test_the_row_of_another_process_does_not_tell_that_the_others_are_stored() -> None:
    """It has executed one of two statements, and its row is in the same bucket."""
    bench = Bench()
    bench.store.answers.append(then(bench.ownership.contest))
    before = measurement(_id=ObjectId())
    bench.commit(before)
    write = bench.shared(bench.statement(1), bench.statement(2))
    assert write.batch.base == 1
    (batch,) = CatalogBench().stage(before, write.batch.measurements[0])
    document = {**decode(batch.bucket.state.prepare(batch.measurements)), "_id": ObjectId(write.batch.stored_id)}
    bench.store.documents[write.batch.stored_id] = encode(document)
    bench.ownership.written[1] = (0, 1)
    await bench.commit_writes(write)
    assert len(bench.store.sent) == 1
    assert bench.written(1) == {0: None}
    assert bench.written(2) == {0: 89}
    assert bench.log.transaction((b"2", NOBODY), 2).lost.runs == 1
    assert bench.outcomes.doubts == {}


async def test_it_is_never_sent_again_after_that() -> None:
    """Also if the stored bucket cannot be read at first."""
    bench = Bench()
    bench.store.answers.append(then(bench.ownership.contest))
    write = bench.shared(bench.statement(1), bench.statement(2))
    bench.ownership.written[1] = (0, 1)
    bench.store.unreadable = BackendUnavailable("unreachable")
    await bench.commit_writes(write)
    assert len(bench.outcomes.doubts) == 1
    await bench.outcomes.pursue(1.0)
    assert len(bench.outcomes.doubts) == 1
    bench.store.unreadable = None
    await bench.outcomes.pursue(1.0)
    assert bench.outcomes.doubts == {}
    assert len(bench.store.sent) == 1
    assert bench.log.transaction((b"2", NOBODY), 2).lost.runs == 1


async def test_other_buckets_of_a_commit_are_sent_again_without_it() -> None:
    """Nothing in them was executed elsewhere, so their outcome can be known."""
    bench = Bench()
    bench.store.answers.append(then(bench.ownership.contest))
    write, other = bench.shared(bench.statement(1)), bench.write(meta="other")
    bench.ownership.written[1] = (0, 1)
    await bench.commit_writes(write, other)
    assert [len(sent) for _, sent, _ in bench.store.sent] == [2, 1]
    assert bench.written(1) == {0: None}
    assert bench.codes == [{0: None}]


async def test_other_writes_in_doubt_are_pursued_whatever_becomes_of_it() -> None:
    bench = Bench()
    bench.store.answers.append(then(bench.ownership.contest))
    write = bench.shared(bench.statement(1))
    bench.ownership.written[1] = (0, 1)
    bench.store.unreadable = BackendUnavailable("unreachable")
    await bench.commit_writes(write)
    statement = bench.statement(2)
    (batch,) = bench.stage(measurement(meta="other"), writer=statement)  # type: ignore[arg-type]
    batch.claim()
    prepared = bench.catalog.prepare(batch)
    assert prepared is not None
    other = PreparedWrite(batch, prepared)
    bench.outcomes.give_up(bench.commit_of(other), CommandError(6, "lost"))
    assert list(bench.outcomes.doubts) == [write.batch, batch]
    await bench.outcomes.pursue(1.0)
    assert list(bench.outcomes.doubts) == [write.batch]
    assert 0 in statement.transaction.written


async def test_other_buckets_of_a_commit_that_was_not_sent_stay_in_it() -> None:
    bench = Bench()
    write, other = bench.shared(bench.statement(1)), bench.write(meta="other")
    bench.ownership.contest()
    bench.ownership.written[1] = (0, 1)
    await bench.commit_writes(write, other)
    assert [len(sent) for _, sent, _ in bench.store.sent] == [1]
    assert bench.codes == [{0: None}]
    assert bench.catalog.take_unclaimed() == []


async def test_while_nobody_can_tell_a_lost_reply_stays_in_doubt() -> None:
    bench = Bench()
    bench.store.answers.append(then(bench.ownership.contest))
    write = bench.shared(bench.statement(1))
    bench.ownership.answers[1] = BackendUnavailable("busy", code=89)

    def later() -> None:
        bench.clock.now += PATIENCE_SECONDS / 2

    bench.ownership.before_answer = later
    await bench.commit_writes(write)
    assert list(bench.outcomes.doubts) == [write.batch]
    assert len(bench.store.sent) == 1
    bench.ownership.answers.clear()
    bench.store.answers.append(NONE_MATCHED)
    bench.store.documents[write.batch.stored_id] = bench.as_stored(write)
    await bench.outcomes.pursue(1.0)
    assert bench.outcomes.doubts == {}
    assert 0 in bench.log.transaction((b"1", NOBODY), 1).written


async def test_an_outcome_that_cannot_be_had_is_told_to_the_store_s_caller() -> None:
    bench = Bench()
    write = bench.shared(bench.statement(1))
    bench.ownership.contest()
    bench.ownership.answers[1] = CommandError(225, "too old")
    outcome = await bench.outcomes.commit(bench.commit_of(write))
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, Contested)
    assert bench.written(1) == {0: 225}


def test_a_commit_keeps_its_time() -> None:
    commit = Commit(OutcomeBench().virtual, WriteConcern(), (), 1.0, 2.0)
    assert (commit.until(9.0).since_seconds, commit.until(9.0).deadline_seconds) == (1.0, 9.0)


async def test_a_commit_that_a_fence_has_kept_out_is_sent_again_after_the_question() -> None:
    """Another process has taken over what this one had sent, and may have executed it."""
    bench = Bench()
    bench.store.answers.append(then(bench.ownership.contest, outcome=Rejected(Fenced())))
    await bench.commit_writes(bench.shared(bench.statement(1)))
    assert bench.ownership.asked == [1]
    assert [name for name, _, _ in bench.store.sent] == ["insert", "insert"]
    assert bench.written(1) == {0: None}


async def test_a_commit_that_is_withheld_for_another_reason_waits_a_moment() -> None:
    bench = Bench(Rejected(Withheld()), Rejected(Withheld()))
    since_seconds = asyncio.get_running_loop().time()
    await bench.commit_writes(bench.shared(bench.statement(1)))
    assert asyncio.get_running_loop().time() - since_seconds >= 2 * WITHHELD_PAUSE_SECONDS
    assert len(bench.store.sent) == 3
    assert bench.ownership.asked == []
    assert bench.written(1) == {0: None}


async def test_what_another_process_has_taken_over_and_executed_is_not_sent_again() -> None:
    bench = Bench()
    bench.store.answers.append(then(bench.ownership.contest, outcome=Rejected(Fenced())))
    bench.ownership.written[1] = (0, 1)
    await bench.commit_writes(bench.shared(bench.statement(1)))
    assert [name for name, _, _ in bench.store.sent] == ["insert"]
    assert bench.written(1) == {0: None}


async def test_without_anybody_to_ask_what_was_taken_over_fails_so_that_drivers_send_it_again() -> None:
    bench = Bench(Rejected(Fenced()))
    bench.reclaiming.ownership = None
    await bench.commit_writes(bench.shared(bench.statement(1)))
    assert bench.written(1) == {0: NETWORK_TIMEOUT}
