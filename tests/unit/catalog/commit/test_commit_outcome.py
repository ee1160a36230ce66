"""What the backend's answers mean for each batch (W65-W67, W126-W128)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from bson import ObjectId

from catalog.bson.codec import decode, encode
from catalog.buckets.write_batch import BatchState
from catalog.commit.round import PreparedWrite
from catalog.commit.sending import Commit
from catalog.commit.statements import Statement, StatementLog
from catalog.commit.written import is_written
from catalog.errors import BackendUnavailable, CommandError
from catalog.growth.growth import GrowthOptions
from catalog.identity import NOBODY
from catalog.kernel import BucketState, Limits, Measurement, bucket_id
from catalog.parts import bucket_of, segment_of
from catalog.ports import Acknowledgement, Applied, Rejected, Unknown, WriteConcern
from tests.support.catalog_parts import ACKNOWLEDGED, HOUR_MS, KEY, START_MS, RememberingWriter, measurement, virtual
from tests.support.outcome_bench import DUPLICATE, LOST, NONE_MATCHED, PATIENCE_SECONDS, OutcomeBench, ServerIds


async def test_acknowledged_command_finishes_every_batch() -> None:
    """W65"""
    bench = OutcomeBench()
    await bench.commit_writes(bench.write(), bench.write(meta="b"))
    assert bench.codes == [{0: None}, {0: None}]
    assert [name for name, _, _ in bench.store.sent] == ["insert"]


async def test_statement_error_fails_its_batch_alone() -> None:
    """W66, W67"""
    bench = OutcomeBench(Applied(1, {0: CommandError(121, "refused")}, ACKNOWLEDGED))
    await bench.commit_writes(bench.write(), bench.write(meta="b"))
    assert bench.codes == [{0: 121}, {0: None}]


@pytest.mark.parametrize("code", [13, 72])
async def test_refused_command_fails_all(code: int) -> None:
    bench = OutcomeBench(Rejected(CommandError(code, "no")))
    await bench.commit_writes(bench.write(), bench.write(meta="b"))
    assert bench.codes == [{0: code}, {0: code}]


async def test_unreachable_backend_fails_all_as_retryable() -> None:
    """Nothing was sent."""
    bench = OutcomeBench(Rejected(BackendUnavailable("connection refused")))
    await bench.commit_writes(bench.write())
    error = bench.writers[0].told[0]
    assert error is not None
    assert error.labels == ("RetryableWriteError",)


async def test_command_that_was_interrupted_halfway_is_looked_at() -> None:
    """What was applied before is not reported as failed."""
    bench = OutcomeBench(Rejected(CommandError(11601, "interrupted")))
    applied, not_applied = bench.write(), bench.write(meta="b")
    bench.store.documents[applied.batch.bucket.state.bucket_id] = applied.statement
    await bench.commit_writes(applied, not_applied)
    assert bench.codes == [{0: None}, {0: 11601}]


async def test_guard_that_did_not_hold_places_anew() -> None:
    """W126"""
    bench = OutcomeBench()
    write = bench.grown()
    bench.store.answers.append(NONE_MATCHED)
    await bench.commit_writes(write)
    assert bench.codes == [{}]
    (moved,) = bench.catalog.take_unclaimed()
    assert moved.bucket is not write.batch.bucket


async def test_equal_rows_of_somebody_else_are_not_taken_for_ours() -> None:
    """W126: when no guard of the command held, no row in the store is ours."""
    bench = OutcomeBench()
    write = bench.grown()
    document = {"_id": 1, "control": {"version": 1}, "data": {"t": {"1": decode(write.batch.measurements[0].raw)["t"]}}}
    bench.store.documents[write.batch.bucket.state.bucket_id] = encode(document)
    bench.store.answers.append(NONE_MATCHED)
    await bench.commit_writes(write)
    assert bench.codes == [{}]


async def test_totals_that_fall_short_are_looked_at() -> None:
    """W126: exactly the lost ones are placed anew."""
    bench = OutcomeBench()
    writes = [bench.grown("a", _id=1), bench.grown("b", _id=2)]
    kept = writes[1].batch
    document = decode(kept.measurements[0].raw)
    document.pop("m")
    rows = {name: {"0": value, "1": value} for name, value in document.items()}
    bench.store.documents[kept.bucket.state.bucket_id] = encode({"control": {"version": 1}, "data": rows})
    bench.store.documents.pop(writes[0].batch.bucket.state.bucket_id)
    bench.store.answers.append(Applied(1, {}, ACKNOWLEDGED))
    await bench.commit_writes(*writes)
    assert bench.codes == [{}, {0: None}]
    assert len(bench.catalog.take_unclaimed()) == 1


async def test_lost_reply_is_found_out_by_sending_again() -> None:
    """W127"""
    bench = OutcomeBench(LOST, LOST)
    await bench.commit_writes(bench.write())
    assert bench.codes == [{0: None}]
    statements = [statement for _, statement, _ in bench.store.sent]
    assert statements == [statements[0]] * 3


async def test_insert_that_had_been_applied_is_acknowledged() -> None:
    """W127: the second copy meets the first."""
    bench = OutcomeBench(LOST, DUPLICATE)
    write = bench.write()
    bench.store.documents[write.batch.bucket.state.bucket_id] = write.statement
    await bench.commit_writes(write)
    assert bench.codes == [{0: None}]


async def test_foreign_bucket_under_our_id_leads_to_another_id() -> None:
    """W128"""
    bench = OutcomeBench(DUPLICATE)
    write = bench.write(v=1)
    foreign = decode(write.statement)
    foreign["data"]["v"]["0"] = 2
    bench.store.documents[write.batch.bucket.state.bucket_id] = encode(foreign)
    await bench.commit_writes(write)
    assert bench.codes == [{}]
    (moved,) = bench.catalog.take_unclaimed()
    assert moved.bucket.state.bucket_id != write.batch.bucket.state.bucket_id


async def test_repeated_command_that_is_refused_is_looked_at() -> None:
    """W127: the first copy may have been applied."""
    bench = OutcomeBench(LOST, Rejected(CommandError(13, "no")))
    write = bench.write()
    bench.store.documents[write.batch.bucket.state.bucket_id] = write.statement
    await bench.commit_writes(write)
    assert bench.codes == [{0: None}]


async def test_repeated_statement_that_fails_may_have_been_written_by_its_first_copy() -> None:
    """W127: and if it was not, it may still be: a retry of the statement is refused rather than doubled."""
    refused = Applied(0, {0: CommandError(121, "refused"), 1: CommandError(121, "refused")}, ACKNOWLEDGED)
    bench = OutcomeBench(LOST, refused)
    written = bench.write(meta="b")
    write, statement, writer = retried(bench)
    bench.store.documents[written.batch.bucket.state.bucket_id] = written.statement
    await bench.commit_writes(write, written)
    assert bench.codes == [{0: None}]
    assert writer.codes == {0: 121}
    assert statement.number in statement.transaction.lost


@pytest.mark.parametrize("knows", ["new incarnation", "nothing", "other fields", "cannot be asked"])
async def test_collection_that_was_dropped_behind_our_back(knows: str) -> None:
    """W72: measurements go on into a new incarnation, and fail without one."""
    bench = OutcomeBench(Rejected(CommandError(361, "Collection UUID does not match that specified")))
    write = bench.write()
    if knows == "new incarnation":
        bench.store.known = virtual(uuid=2)
    elif knows == "other fields":
        bench.store.known = virtual(uuid=2, time_field="ts")
    elif knows == "cannot be asked":
        bench.store.unreadable = BackendUnavailable("away")
    await bench.commit_writes(write)
    if knows == "new incarnation":
        (moved,) = bench.catalog.take_unclaimed()
        assert moved.bucket.series.collection.collection.uuid == virtual(uuid=2).uuid
        assert bench.codes == [{}]
    else:
        assert bench.codes == [{0: 6 if knows == "cannot be asked" else 26}]


# --- in doubt ------------------------------------------------------------------------------------------------


class Slow:
    """Each attempt takes time."""

    def __init__(self, bench: OutcomeBench, seconds: float) -> None:
        self._bench = bench
        self._seconds = seconds

    def __call__(self, statements: Sequence[bytes]) -> Unknown:
        self._bench.clock.now += self._seconds
        return LOST


async def test_outcome_that_is_not_found_out_in_time_is_told_as_unknown() -> None:
    """W127"""
    bench = OutcomeBench()
    bench.store.answers.extend([Slow(bench, 20)] * 9)
    write = bench.write()
    await bench.commit_writes(write)
    error = bench.writers[0].told[0]
    assert error is not None
    assert "unknown" in error.message
    assert error.labels == ("RetryableWriteError",)
    assert not bench.outcomes.doubts
    assert write.batch.state is BatchState.ABORTED


def retried(bench: OutcomeBench) -> tuple[PreparedWrite, Statement, RememberingWriter]:
    statement = Statement(StatementLog().transaction((b"s", NOBODY), 1), 0)
    writer = RememberingWriter()
    statement.wait(writer, 0, bench.clock.now + PATIENCE_SECONDS)
    batch = bench.catalog.place(bench.buckets, measurement(_id=ObjectId()), statement, 0, KEY)
    assert batch is not None
    batch.claim()
    prepared = bench.catalog.prepare(batch)
    assert prepared is not None
    return PreparedWrite(batch, prepared), statement, writer


async def in_doubt() -> tuple[OutcomeBench, PreparedWrite, Statement]:
    bench = OutcomeBench()
    bench.store.answers.extend([Slow(bench, 31)] * 2)
    write, statement, writer = retried(bench)
    await bench.commit_writes(write)
    assert writer.codes == {0: 6}
    assert list(bench.outcomes.doubts) == [write.batch]
    return bench, write, statement


async def test_doubtful_statement_is_pursued_and_its_retry_hears_the_verdict() -> None:
    """W102, W127"""
    bench, write, statement = await in_doubt()
    again = RememberingWriter()
    statement.wait(again, 5, bench.clock.now + PATIENCE_SECONDS)
    bench.store.answers.append(LOST)
    await bench.outcomes.pursue(5)
    assert again.codes == {}
    bench.store.answers.append(DUPLICATE)
    bench.store.documents[write.batch.bucket.state.bucket_id] = write.statement
    await bench.outcomes.pursue(5)
    assert again.codes == {5: None}
    assert not bench.outcomes.doubts
    assert bench.outcomes.pursued() == (0, 0)


async def test_doubtful_statement_that_was_not_written_is_written_for_its_retry() -> None:
    """W102: the guard proves that the first copy never will be."""
    bench, _, statement = await in_doubt()
    again = RememberingWriter()
    statement.wait(again, 5, bench.clock.now + PATIENCE_SECONDS)
    bench.store.answers.append(Rejected(CommandError(361, "dropped")))
    bench.store.known = virtual(uuid=2)
    await bench.outcomes.pursue(5)
    (moved,) = bench.catalog.take_unclaimed()
    assert again.codes == {}
    moved.claim()
    bench.catalog.prepare(moved)
    bench.catalog.finish([moved], ACKNOWLEDGED)
    assert again.codes == {5: None}


async def test_retry_waits_no_longer_than_its_own_deadline() -> None:
    bench, _, statement = await in_doubt()
    again = RememberingWriter()
    statement.wait(again, 5, bench.clock.now + PATIENCE_SECONDS)
    bench.clock.now += PATIENCE_SECONDS - 1
    bench.outcomes.expire()
    assert again.codes == {}
    bench.clock.now += 1
    bench.outcomes.expire()
    assert again.codes == {5: 6}
    assert bench.outcomes.doubts


async def test_unreachable_backend_keeps_the_doubt() -> None:
    bench, write, _ = await in_doubt()
    bench.store.answers.append(Rejected(BackendUnavailable("connection refused")))
    await bench.outcomes.pursue(5)
    assert bench.outcomes.doubts
    assert bench.outcomes.pursued() == (1, len(write.statement))


async def test_doubts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is lost: refused when it is sent again, never written twice."""
    monkeypatch.setattr("catalog.commit.commit_outcome.DOUBTS_LIMIT_BYTES", 300)
    bench = OutcomeBench()
    bench.store.answers.extend([Slow(bench, 31)] * 4)
    for _ in range(2):
        write, _, _ = retried(bench)
        await bench.commit_writes(write)
    assert list(bench.outcomes.doubts) == [write.batch]


# --- looking -------------------------------------------------------------------------------------------------


def test_rows_are_looked_for_where_they_were_put() -> None:
    """W127"""
    bench = OutcomeBench()
    write = bench.write(_id=1)
    assert is_written(write.statement, write.batch, is_alone=True) is True
    assert is_written(None, write.batch, is_alone=True) is False
    other = bench.write(meta="b", _id=2)
    assert is_written(other.statement, write.batch, is_alone=True) is False


def test_rows_that_a_direct_write_moved_are_found_in_a_closed_bucket() -> None:
    bench = OutcomeBench()
    (batch,) = bench.stage(measurement(_id=1, v=1), measurement(1, _id=2, v=2))
    batch.claim()
    statement = bench.catalog.prepare(batch)
    assert statement is not None
    document = decode(statement)
    document["data"] = {name: {"0": column["1"]} for name, column in document["data"].items()}
    assert is_written(encode(document), batch, is_alone=True) is False
    document["control"]["closed"] = True
    assert is_written(encode(document), batch, is_alone=True) is True
    document["data"]["v"]["0"] = 3
    assert is_written(encode(document), batch, is_alone=True) is False


def test_bucket_of_another_version_cannot_tell() -> None:
    """W6"""
    bench = OutcomeBench()
    write = bench.write()
    assert is_written(bench.as_stored(write, version=2), write.batch, is_alone=True) is None


async def test_batches_that_wait_go_on_while_others_are_looked_at() -> None:
    bench = OutcomeBench(Applied(0, {}, Acknowledgement()))
    await bench.commit_writes(bench.write())
    assert bench.woken == 1


def test_part_of_a_commit_keeps_the_rest() -> None:
    bench = OutcomeBench()
    write = bench.write()
    commit = Commit(virtual(), WriteConcern(b"w"), (write,), 1, 5)
    part = commit.of([])
    assert (part.collection, part.write_concern, part.writes) == (commit.collection, WriteConcern(b"w"), [])
    assert (part.since_seconds, part.deadline_seconds) == (1, 5)
    later = commit.until(7)
    assert (later.collection, later.write_concern, later.writes) == (commit.collection, WriteConcern(b"w"), (write,))
    assert (later.since_seconds, later.deadline_seconds) == (1, 7)


async def test_a_bucket_of_a_server_has_no_family() -> None:
    """The ids next to its own are those of other series: they say nothing about the batch, and may be very many."""
    bench = OutcomeBench(ids=ServerIds())
    writes = [bench.grown("a", _id=1), bench.grown("b", _id=2)]
    for write in writes:
        bench.store.documents[write.batch.bucket.state.bucket_id] = encode({"control": {"version": 1}, "data": {}})
    bench.store.documents[b"".join((writes[0].batch.stored_id[:9], b"\xff\xff\xff"))] = b"not to be read"
    bench.store.answers.append(Applied(1, {}, ACKNOWLEDGED))
    await bench.commit_writes(*writes)
    assert bench.codes == [{}, {}], "they are placed again"
    assert len(bench.catalog.take_unclaimed()) == 2


def holding(stored_id: bytes, *rows: Measurement) -> bytes:
    """A stored document with these rows."""
    return bucket_of(stored_id, b"t", b"m", rows[0].meta, START_MS, rows)


async def test_rows_that_are_not_where_they_were_put_are_looked_for_in_all_parts_of_their_bucket() -> None:
    """In whatever segment they lie: another process may have joined them."""
    bench = OutcomeBench(growth=GrowthOptions(in_parts=True, batches_in_round=1, rows_in_place=1, segment_parts=1))
    ids = [bench.commit(measurement(number)).stored_id for number in range(4)]
    assert len({segment_of(each) for each in ids}) == 3
    write = bench.write(4, _id=ObjectId())
    bench.store.documents[write.batch.stored_id] = holding(write.batch.stored_id, measurement(9))
    bench.store.documents[ids[2]] = holding(ids[2], measurement(2), *write.batch.measurements)
    bench.store.answers.extend([LOST, DUPLICATE])
    await bench.commit_writes(write)
    assert bench.codes[-1] == {0: None}


@pytest.mark.parametrize("segment", [b"\0\5", b"\0\7"], ids=["the same segment", "a later segment"])
async def test_rows_of_a_reopened_part_are_looked_for_where_its_process_has_joined_it(segment: bytes) -> None:
    """It has joined them with parts that it has made since (W127)."""
    bench = OutcomeBench(reopening=True, stored_until_ms=START_MS)
    part_id = bucket_id(START_MS, b"\0\5plc\0\0\3")
    joined_id = bucket_id(START_MS, segment + b"plc\0\0\4")
    row = measurement(1, _id=ObjectId())
    assert bench.stage(row) == []
    (lookup,) = bench.catalog.take_lookups()
    state = BucketState.from_document(holding(part_id, measurement()), b"t", b"m", HOUR_MS, Limits())
    bench.catalog.looked_up(lookup, {state.meta: state})
    (batch,) = bench.catalog.take_unclaimed()
    batch.claim()
    statement = bench.catalog.prepare(batch)
    assert statement is not None
    assert (batch.stored_id, batch.base) == (part_id, 1)
    # It was appended to the part, and its process has joined that before the reply was found to be lost.
    bench.store.documents = {joined_id: holding(joined_id, measurement(), row, measurement(2))}
    bench.store.answers.extend([LOST, NONE_MATCHED])
    await bench.commit_writes(PreparedWrite(batch, statement))
    assert bench.catalog.take_unclaimed() == [], "it would be stored twice"
    assert batch.state is BatchState.FINISHED
