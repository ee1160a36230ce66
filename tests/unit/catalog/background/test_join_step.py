"""What becomes of the parts of a step: when it is prepared, committed, given up, or fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from catalog.background.join_step import JoinSteps
from catalog.background.replacing import Differs, Forms
from catalog.bson.codec import decode
from catalog.buckets.open_bucket import Bucket
from catalog.errors import UNAUTHORIZED, WRITE_CONFLICT, BackendUnavailable, CommandError
from catalog.kernel import compressed
from catalog.kernel.merging import is_closed
from catalog.namespaces import VirtualCollection
from catalog.parts import Parts, Pending, join
from catalog.ports import Found, PreparedJoin, Span
from tests.support.catalog_parts import ManualClock, NothingFound, measurement
from tests.support.joining_bench import (
    OPTIONS,
    UNTOUCHED,
    HoldingStore,
    JoiningBench,
    RememberedJoin,
    RememberingStore,
    bench_of_parts,
    everything_of,
)


class FailingStore(RememberingStore):
    """Fails as the test says, when a join is prepared or committed."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.preparing: BaseException | None = None
        self.error: Exception | None = None
        self.takes_seconds = 0.0
        """The time of a commit."""
        self.gone = 0
        """How many buckets are not there."""
        self.found: Found | None = None
        """What there is of the one bucket."""

    async def prepare_join(
        self, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> PreparedJoin:
        if self.preparing is not None:
            raise self.preparing
        if self.found:
            return NothingFound([self.found])
        if self.gone:
            return NothingFound([None] * self.gone + list(map(everything_of, spans[self.gone :])))
        return await super().prepare_join(collection, spans, deadline_seconds)

    async def committing(self, spans: Sequence[Span]) -> None:
        self.clock.now += self.takes_seconds
        if self.error is not None:
            raise self.error


class StepBench(JoiningBench):
    """Buckets in two documents each, whose joins the test takes step by step."""

    def __init__(self, **growth: Any) -> None:
        super().__init__(**growth)
        self.failing = FailingStore(self.clock)
        self.refused: list[CommandError] = []
        self.noticed: list[Exception] = []
        self.steps = JoinSteps(
            self.catalog, self.failing, self.clock, OPTIONS, self.refused.append, Forms(self.noticed.append)
        )

    def in_parts(self, *metas: object) -> list[Bucket]:
        for number in range(2):
            for meta in metas:
                self.commit(measurement(number, meta=meta))
        return list(self.catalog.growth.parted)

    async def join(self, group: Sequence[Bucket]) -> None:
        """Prepare the join of these, and commit it if that succeeds."""
        step = await self.steps.prepare(group, everything)
        if step is not None:
            await self.steps.commit(step)


def everything(bucket: Bucket, parts: Parts) -> Pending:
    return parts.pending(everything=True)


def latest(bucket: Bucket, parts: Parts) -> Pending:
    return parts.pending(everything=False)


def parts_of(bucket: Bucket) -> Parts:
    assert bucket.parts is not None
    return bucket.parts


async def test_parts_are_joined_when_the_step_is_committed() -> None:
    bench = StepBench()
    group = bench.in_parts("a", "b")
    step = await bench.steps.prepare(group, everything)
    assert step is not None
    assert (bench.catalog.growth.unjoined, bench.failing.joins, bench.steps.metrics.joins) == (2, [], 0)
    assert all(parts_of(bucket).joining for bucket in group)
    await bench.steps.commit(step)
    assert (bench.catalog.growth.unjoined, len(bench.failing.joins)) == (0, 2)
    assert not any(parts_of(bucket).joining for bucket in group)
    metrics = bench.steps.metrics
    assert (metrics.joins, metrics.documents_joined, metrics.failures) == (2, 4, 0)


@pytest.mark.parametrize("is_carried_out", [True, False])
async def test_a_slow_commit_makes_steps_smaller_if_it_carries_them_out(
    is_carried_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction waits in its commit for other reasons, for example for other members."""
    monkeypatch.setattr(RememberedJoin, "is_carried_out_by_commit", is_carried_out)
    bench = StepBench()
    await bench.join(bench.in_parts("a", "b"))
    before = bench.steps.size.documents
    bench.failing.takes_seconds = 1.0
    await bench.join(bench.in_parts("c", "d"))
    assert (bench.steps.size.documents < before) is is_carried_out


async def test_parts_that_come_between_are_joined_by_another_step() -> None:
    bench = StepBench()
    (bucket,) = group = bench.in_parts("a")
    step = await bench.steps.prepare(group, everything)
    assert step is not None
    late = bench.commit(measurement(2)).stored_id
    await bench.steps.commit(step)
    parts = parts_of(bucket)
    assert (parts.stored, parts.fresh, parts.last_id) == (2, 1, late)
    assert [run.rows for run in parts.runs] == [2]
    assert list(bench.catalog.growth.parted) == group


async def test_without_its_last_part_a_bucket_goes_on_with_the_one_before() -> None:
    """All of its rows were deleted; what is joined with the bucket later has to find it."""
    bench = StepBench()
    (bucket,) = group = bench.in_parts("a")
    late = bench.commit(measurement(2)).stored_id
    before = late[:-1] + bytes([late[-1] - 1])
    bench.failing.found = Found(2, before)
    await bench.join(group)
    assert [run.stored_id for run in parts_of(bucket).runs] == [before]
    later = bench.commit(measurement(3)).stored_id
    assert later > late
    assert [each.first_id for each in parts_of(bucket).pending(everything=True).ranges] == [before, later]


@pytest.mark.parametrize("sealed", [True, False])
async def test_where_parts_are_closed_so_are_runs_until_the_last_join(*, sealed: bool) -> None:
    """Otherwise each of them would have to be closed before it is joined again."""
    bench, store = StepBench(sealed=sealed), HoldingStore()
    steps = JoinSteps(bench.catalog, store, bench.clock, OPTIONS, bench.refused.append, UNTOUCHED)
    for row in map(measurement, range(4)):
        store.hold(bench.commit(row), row, sealed=sealed)
    (bucket,) = bench.catalog.growth.parted
    for pending_of in (latest, everything):
        step = await steps.prepare([bucket], pending_of)
        assert step is not None
        await steps.commit(step)
        store.documents[parts_of(bucket).last_id] = store.joined[-1]
    assert [is_closed(each) for each in store.joined] == [sealed, False]
    assert [len(decode(each)["data"]["t"]) for each in store.joined] == [3, 4], "the first document is the bucket's own"


async def test_a_bucket_is_in_one_step_at_a_time() -> None:
    bench = StepBench()
    group = bench.in_parts("a", "b")
    step = await bench.steps.prepare(group[:1], everything)
    both = await bench.steps.prepare(group, everything)
    assert step is not None
    assert both is not None
    assert [each.bucket for each in both.joins] == group[1:]
    assert await bench.steps.prepare(group, everything) is None
    assert list(bench.catalog.growth.parted) == group


async def test_what_is_given_up_stays_due() -> None:
    bench = StepBench()
    group = bench.in_parts("a", "b")
    steps = [await bench.steps.prepare([bucket], everything) for bucket in group]
    await bench.steps.abandon([step for step in steps if step is not None])
    assert (bench.failing.abandoned, bench.failing.open, bench.failing.joins) == (2, 0, [])
    for bucket in group:
        parts = parts_of(bucket)
        assert (parts.joining, parts.stored, parts.attempts, parts.not_before_seconds) == (False, 2, 0, 0.0)
    assert bench.steps.metrics.failures == 0
    assert await bench.steps.prepare(group, everything) is not None


async def test_what_is_one_document_needs_no_command() -> None:
    """Of one that was joined meanwhile, and of one whose only part is a run."""
    bench = StepBench()
    for meta in "ab":
        bench.commit(*(measurement(number, meta=meta) for number in range(9)))
        bench.commit(measurement(9, meta=meta))
    joined, single = bench.catalog.growth.parted
    parts_of(joined).joined(parts_of(joined).pending(everything=True))
    assert await bench.steps.prepare([joined, single], latest) is None
    assert bench.failing.steps == 0
    assert list(bench.catalog.growth.parted) == [single]
    assert (parts_of(single).fresh, parts_of(single).stored) == (0, 2)


FAILURES = [
    CommandError(WRITE_CONFLICT, "conflict"),
    ValueError("others changed them"),
    Differs("wrong"),
    TypeError("a bug"),
]


@pytest.mark.parametrize("when", ["preparing", "error"])
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
async def test_the_buckets_of_a_step_that_failed_are_tried_alone(when: str, failure: Exception) -> None:
    """One of them may be the cause."""
    bench = StepBench()
    group = bench.in_parts("a", "b", "c")
    setattr(bench.failing, when, failure)
    await bench.join(group)
    assert bench.steps.again == group
    assert bench.steps.metrics.failures == 0
    assert bench.noticed == []
    for bucket in group:
        parts = parts_of(bucket)
        assert (parts.joining, parts.stored, parts.attempts) == (False, 2, 0)


@pytest.mark.parametrize("when", ["preparing", "error"])
@pytest.mark.parametrize("failure", FAILURES[:2], ids=lambda failure: type(failure).__name__)
async def test_what_others_do_is_waited_for_longer_and_longer_until_the_parts_are_left(
    when: str, failure: Exception
) -> None:
    """Such as a change of meta values, which changes one part after the other. Every reader can read them."""
    bench = StepBench()
    (bucket,) = group = bench.in_parts("a")
    setattr(bench.failing, when, failure)
    pauses = []
    for _ in range(OPTIONS.attempts):
        await bench.join(group)
        pauses.append(parts_of(bucket).not_before_seconds - bench.clock.now)
    assert pauses == [OPTIONS.pause_seconds * 2**number for number in range(OPTIONS.attempts)]
    assert (bench.catalog.growth.unjoined, bench.steps.again) == (1, [])
    await bench.join(group)
    assert (bench.catalog.growth.unjoined, list(bench.catalog.growth.parted)) == (0, [])
    assert bench.steps.metrics.failures == OPTIONS.attempts + 1
    assert bench.noticed == []


@pytest.mark.parametrize("when", ["preparing", "error"])
@pytest.mark.parametrize("failure", FAILURES[2:], ids=lambda failure: type(failure).__name__)
async def test_parts_that_are_joined_wrongly_stay_as_they_are(when: str, failure: Exception) -> None:
    """Every reader can read them."""
    bench = StepBench()
    group = bench.in_parts("a")
    setattr(bench.failing, when, failure)
    await bench.join(group)
    assert (bench.catalog.growth.unjoined, list(bench.catalog.growth.parted)) == (0, [])
    assert bench.steps.metrics.failures == 1
    assert bench.noticed == [failure]


@pytest.mark.parametrize("when", ["preparing", "error"])
async def test_a_backend_that_does_not_respond_puts_all_of_them_off(when: str) -> None:
    """They have succeeded perhaps, as the next try will show; so it is the same one."""
    bench = StepBench()
    group = bench.in_parts("a", "b")
    setattr(bench.failing, when, BackendUnavailable("gone"))
    await bench.join(group)
    assert not bench.steps.answers
    assert (bench.steps.again, bench.catalog.growth.unjoined) == ([], 2)
    assert {parts_of(bucket).not_before_seconds for bucket in group} == {bench.clock.now + OPTIONS.pause_seconds}
    setattr(bench.failing, when, None)
    await bench.join(group)
    assert bench.steps.answers
    assert bench.catalog.growth.unjoined == 0
    assert {parts_of(bucket).attempts for bucket in group} == {0}


@pytest.mark.parametrize("when", ["preparing", "error"])
async def test_an_account_that_may_not_join_ends_growth_in_parts(when: str) -> None:
    bench = StepBench()
    group = bench.in_parts("a", "b")
    setattr(bench.failing, when, CommandError(UNAUTHORIZED, "not authorized"))
    await bench.join(group[:1])
    await bench.join(group[1:])
    assert len(bench.refused) == 1
    assert not bench.catalog.growth.is_in_parts
    assert bench.catalog.growth.unjoined == 0


async def test_a_bucket_that_is_gone_is_left_and_the_others_are_joined() -> None:
    bench = StepBench()
    group = bench.in_parts("a", "b", "c")
    bench.failing.gone = 1
    await bench.join(group)
    metrics = bench.steps.metrics
    assert (metrics.joins, metrics.documents_joined, metrics.failures) == (2, 4, 1)
    assert bench.catalog.growth.unjoined == 0


async def test_a_step_that_is_cancelled_while_it_is_prepared_leaves_its_buckets_free() -> None:
    """At the end of the process, all are joined."""
    bench = StepBench()
    group = bench.in_parts("a")
    bench.failing.preparing = asyncio.CancelledError()
    with pytest.raises(asyncio.CancelledError):
        await bench.steps.prepare(group, everything)
    bench.failing.preparing = None
    await bench.join(group)
    assert bench.catalog.growth.unjoined == 0


def _loses_a_row(documents: Sequence[bytes], *others: Any) -> bytes:
    return join(documents[1:], *others)


def _gives_a_row_twice(documents: Sequence[bytes], *others: Any) -> bytes:
    return join([*documents, documents[-1]], *others)


def _changes_a_value(documents: Sequence[bytes], *others: Any) -> bytes:
    return join(documents, *others).replace(b"\x107\0\7", b"\x107\0\6")


@pytest.mark.parametrize("broken", [_loses_a_row, _gives_a_row_twice, _changes_a_value])
async def test_a_join_that_does_not_hold_its_parts_is_not_written(broken: Any) -> None:
    """The parts stay, it is told once, nobody tries again."""
    noticed: list[Differs] = []
    bench, store, joining = bench_of_parts(Forms(noticed.append, merge=broken), full=True)
    await joining.join_due()
    await joining.join_due()
    assert store.joined == []
    assert ["does not hold its parts" in str(fault) for fault in noticed] == [True]
    assert (joining.metrics.joins, joining.metrics.failures) == (0, 1)
    assert not bench.catalog.growth.unjoined


async def test_a_join_that_is_compressed_wrongly_is_written_uncompressed() -> None:
    noticed: list[Differs] = []
    documents: list[bytes] = []

    def compress(document: bytes, time_field: bytes) -> bytes | None:
        documents.append(document)
        smaller = compressed(document, time_field)
        assert smaller is not None
        return smaller.replace(b"x" * 200, b"x" * 199 + b"y")

    bench, store, joining = bench_of_parts(Forms(noticed.append, compress), full=True)
    await joining.join_due()
    assert store.joined == documents
    assert len(documents) == 1
    assert len(noticed) == 1
    assert joining.metrics.joins == 1
    assert bench.buckets.counters.numCompressedBuckets == 0


async def test_what_is_joined_and_compressed_rightly_is_written() -> None:
    bench, store, joining = bench_of_parts(UNTOUCHED, full=True)
    await joining.join_due()
    (written,) = store.joined
    assert decode(written)["control"]["version"] == 2
    assert bench.buckets.counters.numCompressedBuckets == 1
