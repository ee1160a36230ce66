"""Group commit: rounds, lanes, and that nobody waits for ever (W63-W68)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from catalog.commit.round import RoundLimits
from catalog.commit.sending import Commit
from catalog.commit.statements import Statement, StatementLog
from catalog.errors import BackendUnavailable, CommandError
from catalog.identity import NOBODY
from catalog.namespaces import VirtualCollection
from catalog.ports import Applied, BulkOutcome, Rejected, Unknown
from tests.support.catalog_parts import (
    ACKNOWLEDGED,
    KEY,
    RememberingWriter,
    ScriptedStore,
    measurement,
)
from tests.support.committer_bench import Behind, CommitterBench, HeldStore
from tests.support.still_clock import clock_stands_still


@pytest.fixture(autouse=True, params=[False, True], ids=["in a task", "without a task"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the store can send commits without a wait."""
    monkeypatch.setattr(ScriptedStore, "takes_no_wait", request.param)


async def test_a_thousand_devices_at_once_are_one_command() -> None:
    """W64: one insert for all new buckets."""
    bench = CommitterBench()
    writers = [bench.insert(measurement(meta=number)) for number in range(1000)]
    await bench.rest()
    assert [(name, len(statements)) for name, statements, _ in bench.store.sent] == [("insert", 1000)]
    assert all(writer.codes == {0: None} for writer in writers)
    assert bench.committer.metrics.rounds == 1


async def test_new_and_grown_buckets_leave_together_in_two_commands() -> None:
    bench = CommitterBench()
    bench.insert(measurement(meta="old"))
    await bench.rest()
    bench.insert(measurement(1, meta="old"))
    bench.insert(measurement(meta="new"))
    await bench.rest()
    assert sorted(name for name, _, _ in bench.store.sent) == ["insert", "insert", "update"]
    assert bench.committer.metrics.rounds == 2


async def test_write_concerns_never_share_a_command() -> None:
    """W70"""
    bench = CommitterBench()
    for raw in (b"", b"one", b"two"):
        bench.insert(measurement(meta="a"), key=KEY._replace(write_concern=raw))
        bench.insert(measurement(meta="b"), key=KEY._replace(write_concern=raw))
    await bench.rest()
    assert {concern.raw for _, _, concern in bench.store.sent} == {b"", b"one", b"two"}
    assert bench.buckets.lanes == ({}, {})


async def test_what_arrives_while_rounds_are_under_way_shares_the_next() -> None:
    """W63"""
    store = HeldStore()
    bench = CommitterBench(store=store, rounds_in_flight=1)
    bench.insert(measurement(meta=0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for number in range(1, 10):
        bench.insert(measurement(meta=number))
        await asyncio.sleep(0)
    assert [len(statements) for _, statements, _ in store.sent] == [1]
    assert bench.committer.batches_ready == 9
    store.gate.set()
    await bench.rest()
    assert [len(statements) for _, statements, _ in store.sent] == [1, 9]


async def test_second_batch_of_a_bucket_follows_the_first() -> None:
    """W64"""
    store = HeldStore()
    bench = CommitterBench(store=store)
    first = bench.insert(measurement())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = bench.insert(measurement(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(store.sent) == 1
    store.gate.set()
    await bench.rest()
    assert [name for name, _, _ in store.sent] == ["insert", "update"]
    assert first.codes == second.codes == {0: None}


async def test_large_rounds_are_split() -> None:
    bench = CommitterBench(limits=RoundLimits(statements=4))
    writers = [bench.insert(measurement(meta=number)) for number in range(10)]
    await bench.rest()
    assert [len(statements) for _, statements, _ in bench.store.sent] == [4, 4, 2]
    assert all(writer.codes == {0: None} for writer in writers)


async def test_a_round_includes_what_clients_send_when_they_have_their_replies() -> None:
    behind = Behind()
    bench = CommitterBench(behind_replies=behind)
    for meta in range(3):
        bench.insert(measurement(meta=meta))
        await asyncio.sleep(0)
    assert bench.store.sent == []
    behind.written()
    await bench.rest()
    bench.insert(measurement(meta=3))
    await bench.rest()
    assert [len(statements) for _, statements, _ in bench.store.sent] == [3, 1]


async def test_linger_waits_for_company() -> None:
    bench = CommitterBench(linger_seconds=0.02)
    with clock_stands_still():
        bench.insert(measurement(meta=0))
        for _ in range(5):  # without a linger, the round would begin in the first of these turns
            await asyncio.sleep(0)
        bench.insert(measurement(meta=1))
    await bench.rest()
    assert [len(statements) for _, statements, _ in bench.store.sent] == [2]


async def test_moved_measurements_are_committed_without_their_writers() -> None:
    """W67, W126"""
    bench = CommitterBench()
    bench.insert(measurement())
    await bench.rest()
    bench.store.answers.append(Applied(0, {}, ACKNOWLEDGED))
    writer = bench.insert(measurement(1))
    await bench.rest()
    assert [name for name, _, _ in bench.store.sent] == ["insert", "update", "insert"]
    assert writer.codes == {0: None}


async def test_parked_measurements_are_committed_after_the_look() -> None:
    """W50"""
    bench = CommitterBench(reopening=True)
    writer = bench.insert(measurement(), measurement(1))
    assert writer.codes == {}
    await bench.rest()
    assert writer.codes == {0: None, 1: None}


class BrokenStore(ScriptedStore):
    """A bug of ours in the store."""

    def begin(self, *arguments: Any, **options: Any) -> bool:
        return False

    async def insert(self, *arguments: Any) -> BulkOutcome:
        raise RuntimeError("bug")


async def test_our_bug_is_reported_and_leaves_nobody_waiting() -> None:
    bench = CommitterBench(store=BrokenStore())
    writers = [bench.insert(measurement(meta=number)) for number in range(3)]
    await bench.rest()
    assert [writer.codes for writer in writers] == [{0: 1}] * 3
    assert [str(error) for error in bench.reported] == ["bug"]
    assert bench.committer.metrics.failures == 1


class BrokenLookStore(ScriptedStore):
    """A bug of ours while looking, after some batches were finished."""

    async def fetch(
        self, collection: VirtualCollection, bucket_ids: Sequence[bytes], deadline_seconds: float
    ) -> Mapping[bytes, bytes]:
        raise RuntimeError("bug")


async def test_bug_while_looking_does_not_lose_those_who_waited_for_a_turn() -> None:
    """W64: a batch behind one that was finished goes on."""
    store = BrokenLookStore()
    bench = CommitterBench(store=store)
    bench.insert(measurement(meta="a"), measurement(meta="b"))
    await bench.rest()
    waiting: list[RememberingWriter] = []

    def answer(statements: Sequence[bytes]) -> BulkOutcome:
        waiting.append(bench.insert(measurement(5, meta="a")))
        for batch in [each for bucket in bench.catalog._memory for each in bucket.batches.values()]:
            assert bench.catalog.prepare(batch) is None
        error = CommandError(11000, "E11000")
        return Applied(1, {1: error}, ACKNOWLEDGED)

    store.answers.append(answer)
    first = bench.insert(measurement(1, meta="a"), measurement(1, meta="b"))
    await bench.rest()
    assert waiting[0].codes == {0: None}
    assert first.codes == {0: None, 1: 1}


async def test_retry_of_a_doubtful_statement_hears_the_verdict() -> None:
    """W102, W127: pursued in the background, while others commit."""
    lost = Unknown(BackendUnavailable("connection reset"))

    class Lossy(ScriptedStore):
        healed = False

        async def insert(self, *arguments: Any) -> BulkOutcome:
            await asyncio.sleep(0.01)
            return Applied(1, {}, ACKNOWLEDGED) if self.healed else lost

    store = Lossy()
    bench = CommitterBench(store=store, server_selection_timeout_seconds=0.05)
    statement = Statement(StatementLog().transaction((b"s", NOBODY), 1), 0)
    first, again = RememberingWriter(), RememberingWriter()
    statement.wait(first, 0, bench.committer.deadline_seconds())
    batch = bench.catalog.place(bench.buckets, measurement(), statement, 0, KEY)
    assert batch is not None
    assert batch.claim()
    bench.committer.submit(batch)
    while not first.told:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0.01)
    assert first.codes == {0: 6}
    statement.wait(again, 3, bench.committer.deadline_seconds() + 5)
    store.healed = True
    async with asyncio.timeout(20):
        while not again.told:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
    assert again.codes == {3: None}
    await bench.rest()


@pytest.mark.parametrize("patience_seconds", [0.0, 0.01])
async def test_shutdown_tells_those_who_wait(patience_seconds: float) -> None:
    store = HeldStore()
    bench = CommitterBench(store=store)
    writer = bench.insert(measurement())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not await bench.committer.drain(patience_seconds)
    assert writer.codes == {0: 91}


@pytest.mark.parametrize("ahead_seconds", [-1, 1])
async def test_deadlines(ahead_seconds: float) -> None:
    bench = CommitterBench(server_selection_timeout_seconds=7)
    now = asyncio.get_running_loop().time()
    assert now + 7 <= bench.committer.deadline_seconds() < now + 8
    assert bench.committer.is_over(now + ahead_seconds) is (ahead_seconds < 0)


class Seen:
    """An observer that looks at every commit, or at none."""

    def __init__(self, *, looks: bool = True) -> None:
        self.commits: list[Commit] = []
        self.outcomes: list[BulkOutcome | None] = []
        self._looks = looks

    def began(self, commit: Commit) -> Seen | None:
        self.commits.append(commit)
        return self if self._looks else None

    def ended(self, outcome: BulkOutcome | None) -> None:
        self.outcomes.append(outcome)


async def test_an_observer_sees_how_each_commit_ends() -> None:
    refused = Rejected(CommandError(13, "not authorized"))
    bench = CommitterBench(store=ScriptedStore(Applied(1, {}, ACKNOWLEDGED), refused))
    seen = Seen()
    bench.committer.observe(seen)
    for number in range(2):
        bench.insert(measurement(meta=number))
        await bench.rest()
    assert [len(commit.writes) for commit in seen.commits] == [1, 1]
    assert [type(outcome) for outcome in seen.outcomes] == [Applied, Rejected]


async def test_an_observer_sees_that_a_commit_is_cancelled() -> None:
    bench = CommitterBench(store=HeldStore())
    seen = Seen()
    bench.committer.observe(seen)
    bench.insert(measurement())
    assert not await bench.committer.drain(0.01)
    assert seen.outcomes == [None]


async def test_an_observer_may_look_away() -> None:
    bench = CommitterBench()
    seen = Seen(looks=False)
    bench.committer.observe(seen)
    writer = bench.insert(measurement())
    await bench.rest()
    assert (len(seen.commits), seen.outcomes, writer.codes) == (1, [], {0: None})


async def test_a_stop_sleeps_while_writes_linger() -> None:
    """It does not keep the event loop busy, and neither loses what waits."""
    bench = CommitterBench()
    bench.committer.pace(linger_seconds=0.3, rounds_in_flight=2)
    writer = bench.insert(measurement())
    used_seconds = time.process_time()
    assert await bench.committer.drain(5)
    assert time.process_time() - used_seconds < 0.15
    assert writer.codes == {0: None}
