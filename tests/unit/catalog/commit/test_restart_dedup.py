"""Rows of an earlier process are found again, whole and counted (W102)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from bson import ObjectId

from catalog.bson.codec import decode
from catalog.commit.restart_dedup import MOST_DOUBTED, NOTHING_UPDATE, Found, RestartDedup
from catalog.errors import BackendUnavailable, CommandError
from catalog.kernel import Measurement
from catalog.ports import Acknowledgement, Applied, Rejected, WriteConcern
from tests.support.catalog_parts import CatalogBench, ScriptedStore, measurement

IDS = [ObjectId() for _ in range(4)]
MAJORITY = WriteConcern(b"majority")


class Bench(CatalogBench):
    """With stored rows ``IDS[:2]`` of an earlier process, and tasks that run when the test says so."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self.store = ScriptedStore(*answers)
        (batch,) = CatalogBench().stage(*(measurement(n, _id=each) for n, each in enumerate(IDS[:2])))
        batch.claim()
        self.store.documents[b"x"] = batch.bucket.state.prepare(batch.measurements)
        self.tasks: list[Coroutine[Any, Any, None]] = []
        self.dedup = RestartDedup(self.store, self.clock, 120, 30, self.tasks.append)
        self.answers: list[Found | CommandError] = []
        self.ids: list[tuple[ObjectId, ...]] = []

    def ask(self, *ids: ObjectId, write_concern: WriteConcern = WriteConcern()) -> None:  # noqa: B008 - frozen
        self.ids.append(ids)
        measurements: list[Measurement] = [measurement(IDS.index(each), _id=each) for each in ids]
        self.dedup.ask(self.buckets.collection, measurements, write_concern, self.answers.append)

    async def run(self) -> None:
        while self.tasks:
            await self.tasks.pop()

    @property
    def found(self) -> list[set[ObjectId]]:
        return [
            {ids[position] for position in each.written}
            for ids, each in zip(self.ids, self.answers, strict=False)
            if isinstance(each, Found)
        ]


async def test_rows_that_are_there_are_told() -> None:
    bench = Bench()
    bench.ask(IDS[0], IDS[2])
    assert bench.answers == []
    await bench.run()
    assert bench.found == [{IDS[0]}]


async def test_questions_of_one_moment_share_a_query() -> None:
    bench = Bench()
    for each in IDS:
        bench.ask(each)
    await bench.run()
    assert len(bench.store.asked) == 1
    assert bench.found == [{IDS[0]}, {IDS[1]}, set(), set()]
    bench.ask(IDS[0])
    await bench.run()
    assert len(bench.store.asked) == 2


@pytest.mark.parametrize(("stored", "sent", "found"), [(1, 1, 1), (3, 3, 3), (5, 1, 0), (5, 1000, 0)])
async def test_equal_rows_are_of_a_retry_when_they_are_as_many(stored: int, sent: int, found: int) -> None:
    """``_id`` may repeat; more or fewer equal rows than the statement has are others'."""
    bench = Bench()
    (batch,) = CatalogBench().stage(*[measurement(_id="device", v=1)] * stored)
    batch.claim()
    bench.store.documents = {b"x": batch.bucket.state.prepare(batch.measurements)}
    for _ in range(2):
        rows = [measurement(_id="device", v=1)] * sent
        bench.dedup.ask(bench.buckets.collection, rows, WriteConcern(), bench.answers.append)
        await bench.run()
    # What was found for one statement is nobody else's.
    assert [len(each.written) for each in bench.answers if isinstance(each, Found)] == [found, 0]


async def test_rows_that_differ_in_anything_are_others() -> None:
    bench = Bench()
    for other in ({"v": None}, {"_id": "x"}, {"meta": "b"}, {"offset_ms": 1}):
        options: dict[str, Any] = {"offset_ms": 0, "_id": IDS[0], **other}
        bench.dedup.ask(bench.buckets.collection, [measurement(**options)], WriteConcern(), bench.answers.append)
    await bench.run()
    assert bench.answers == [Found(frozenset())] * 4


async def test_rows_that_this_process_wrote_or_that_are_old_are_others() -> None:
    bench = Bench()
    bench.store.late.add(b"x")
    bench.ask(IDS[0])
    await bench.run()
    assert bench.found == [set()]


async def test_failed_confirmation_claims_nothing() -> None:
    """The statement asks again when it is sent again, and its rows are still there."""
    bench = Bench(Rejected(BackendUnavailable("away")))
    for _ in range(2):
        bench.ask(IDS[0], write_concern=MAJORITY)
        await bench.run()
    assert isinstance(bench.answers[0], BackendUnavailable)
    assert bench.found == [{IDS[0]}]


async def test_measurement_without_id_is_never_found() -> None:
    bench = Bench()
    bench.ids.append(())
    bench.dedup.ask(bench.buckets.collection, [measurement()], WriteConcern(), bench.answers.append)
    await bench.run()
    assert bench.found == [set()]


def test_only_first_statements_of_a_session_soon_after_the_start() -> None:
    bench = Bench()
    assert bench.dedup.is_needed(bench.buckets.collection, first_of_session=True)
    assert not bench.dedup.is_needed(bench.buckets.collection, first_of_session=False)
    bench.clock.now += 120
    assert not bench.dedup.is_needed(bench.buckets.collection, first_of_session=True)


async def test_any_statement_for_a_database_that_is_doubted_for_a_while() -> None:
    """Rows count that were stored while this process was writing to the collection."""
    bench = Bench()
    collection = bench.buckets.collection
    bench.store.late.add(b"x")
    bench.dedup.doubt("another")
    assert not bench.dedup.is_needed(collection, first_of_session=False)
    bench.dedup.doubt(collection.namespace.database)
    assert bench.dedup.is_needed(collection, first_of_session=False)
    bench.ask(IDS[0])
    await bench.run()
    assert bench.found == [{IDS[0]}]
    bench.clock.now += 120
    assert not bench.dedup.is_needed(collection, first_of_session=False)


def test_few_databases_are_doubted_at_a_time() -> None:
    bench = Bench()
    bench.dedup.doubt(bench.buckets.collection.namespace.database)
    for number in range(MOST_DOUBTED):
        bench.dedup.doubt(str(number))
    assert not bench.dedup.is_needed(bench.buckets.collection, first_of_session=False)


async def test_what_is_there_waits_for_the_write_concern_of_its_retry() -> None:
    """W104: the earlier process may have ended before a majority had it."""
    unmet = Acknowledgement({"code": 64})
    bench = Bench(Applied(0, {}, unmet))
    bench.ask(IDS[0], write_concern=MAJORITY)
    bench.ask(IDS[1], write_concern=MAJORITY)
    bench.ask(IDS[2])
    await bench.run()
    assert [(name, concern) for name, _, concern in bench.store.sent] == [("update", MAJORITY)]
    assert [each.acknowledgement for each in bench.answers if isinstance(each, Found)] == [unmet, unmet, None]


def test_update_that_only_waits_changes_nothing() -> None:
    assert decode(NOTHING_UPDATE) == {"q": {"_id": ObjectId(bytes(12))}, "u": {"$unset": {"x": None}}}


async def test_what_cannot_be_found_out_is_told_as_such() -> None:
    """Rather an error than a second copy."""
    bench = Bench()
    bench.store.unreadable = BackendUnavailable("away")
    bench.ask(IDS[0])
    bench.ask(IDS[2])
    await bench.run()
    assert bench.answers == [bench.store.unreadable] * 2


async def test_write_concern_that_cannot_be_awaited_is_an_error() -> None:
    bench = Bench(Rejected(BackendUnavailable("away")))
    bench.ask(IDS[0], write_concern=MAJORITY)
    await bench.run()
    (answer,) = bench.answers
    assert isinstance(answer, BackendUnavailable)


async def test_our_bug_leaves_nobody_waiting() -> None:
    bench = Bench()
    bench.store.documents[b"broken"] = b"\x05\0\0\0\0"
    bench.ask(IDS[0])
    bench.ask(IDS[1])
    try:
        await bench.run()
    except ValueError:
        assert all(isinstance(each, CommandError) for each in bench.answers)
    assert len(bench.answers) == 2


async def test_until_now_rows_count_whoever_wrote_them() -> None:
    """Another process, which cannot be asked, may have written them after this one wrote to the collection."""
    bench = Bench()
    bench.store.late.add(b"x")
    measurements = [measurement(0, _id=IDS[0])]
    for until_now in (False, True):
        collection = bench.buckets.collection
        bench.dedup.ask(collection, measurements, WriteConcern(), bench.answers.append, until_now=until_now)
    await bench.run()
    assert [each.written for each in bench.answers if isinstance(each, Found)] == [frozenset({0}), frozenset()]
