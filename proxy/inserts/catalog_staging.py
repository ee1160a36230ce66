"""Stages documents in the shared catalog: the way of inserts while buckets are used."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from catalog.buckets.open_bucket import CollectionBuckets
from catalog.buckets.write_batch import CombineKey, WriteBatch
from catalog.catalog import BucketCatalog
from catalog.commit.committer import Committer
from catalog.commit.restart_dedup import Found
from catalog.commit.statements import Statement, StatementLog, Transaction
from catalog.errors import CommandError
from catalog.kernel import Measurement, parse_measurement
from catalog.namespaces import VirtualCollection
from catalog.ports import WriteConcern
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_reply import InsertReply
from proxy.inserts.plain_insert import PlainInsert
from proxy.inserts.series_order import MOST, Parsed, by_series
from proxy.inserts.slices import SliceResult, Slices, ThreadCall
from proxy.inserts.staging import (
    DOCUMENTS_IN_A_STEP,
    LARGE_BYTES,
    NO_STATEMENT,
    STEP_BYTES,
    ReplyTo,
    Staging,
    is_recorded,
    is_settled_by,
)

BATCHES_IN_A_TURN = 250
"""Maximum number of new batches of one command that are staged in one turn of the event loop."""


class CatalogStaging(Staging):
    """Places measurements in buckets, and claims batches that have no claimant."""

    def __init__(self, catalog: BucketCatalog, committer: Committer, statements: StatementLog, slices: Slices) -> None:
        super().__init__(committer.restart_dedup)
        self._catalog = catalog
        self._committer = committer
        self._statements = statements
        self._slices = slices

    def kick(self) -> None:
        if self._catalog.has_work:
            self._committer.kick()

    def stage_one(
        self,
        collection: VirtualCollection,
        document: bytes,
        transaction: Transaction | None,
        key: CombineKey,
        writer: PlainInsert,
    ) -> None:
        catalog = self._catalog
        buckets = catalog.collection(collection)
        measurement = parse_measurement(document, buckets.time_field, buckets.meta_field)
        if transaction is not None:
            self._stage_statement(transaction, 0, measurement, buckets, key, writer, 0, None)
            return
        batch = catalog.place(buckets, measurement, writer, 0, key)
        if batch is None:
            return
        if batch.claim():
            self._committer.submit(batch)
        else:
            self._joined(batch, is_bulk=False)

    def will_hold_distant_times(self, collection: VirtualCollection) -> None:
        """Somebody else stores times outside the range of bucket ids (Q12)."""
        self._catalog.hold_extended_range(self._catalog.collection(collection))

    def _joined(self, batch: WriteBatch, *, is_bulk: bool) -> None:
        """A writer has joined a batch that another one has claimed."""
        self._catalog.waited(batch)
        if batch.bulk and not is_bulk:
            self._committer.hasten(batch)

    def stage(
        self, insert: InsertCommand, collection: VirtualCollection, key: CombineKey, insert_reply: InsertReply
    ) -> Iterator[SliceResult]:
        if insert.statement_ids is None:
            return self._stage_documents(insert, collection, key, insert_reply)
        return self._stage_statements(insert, collection, key, insert_reply)

    def _stage_documents(
        self, insert: InsertCommand, collection: VirtualCollection, key: CombineKey, insert_reply: InsertReply
    ) -> Iterator[SliceResult]:
        """Stage the documents. Pauses after many new batches, so that these are committed meanwhile."""
        place, submit, is_bulk = self._catalog.place, self._committer.submit, insert_reply.is_bulk
        previous, until_pause, until_step, end = None, BATCHES_IN_A_TURN, DOCUMENTS_IN_A_STEP, len(insert.documents)
        for first in range(0, end, MOST):
            parsed = yield from self._parsed(insert, first, collection, insert_reply)
            buckets = self._catalog.collection(collection)
            for index, measurement in parsed:
                if until_step <= 0 or not until_pause:
                    yield not until_pause
                    buckets, until_step = self._catalog.collection(collection), DOCUMENTS_IN_A_STEP
                    until_pause = until_pause or BATCHES_IN_A_TURN
                until_step -= 1
                if index >= end:
                    continue
                try:
                    batch = place(buckets, measurement, insert_reply, index, key)
                except CommandError as error:
                    insert_reply.refuse(index, error)
                    end = index if insert.ordered else end
                    continue
                insert_reply.expect()
                if batch is None:
                    continue
                if batch.claim():
                    batch.bulk = is_bulk
                    submit(batch)
                    until_pause -= 1
                elif batch is not previous:
                    self._joined(batch, is_bulk=is_bulk)
                previous = batch
            if insert.ordered and insert_reply.has_refused:
                return

    def _parsed(
        self, insert: InsertCommand, first: int, collection: VirtualCollection, insert_reply: InsertReply
    ) -> Generator[SliceResult, None, Parsed]:
        """The documents from position ``first`` on, ``MOST`` at most, in the order in which they are staged.

        Refuses what is no measurement. Then, what follows in an ordered insert is left out.
        """
        parsed: Parsed = []
        buckets = self._catalog.collection(collection)
        time_field, meta_field = buckets.time_field, buckets.meta_field
        until_step = DOCUMENTS_IN_A_STEP
        for index, document in enumerate(insert.documents[first : first + MOST], first):
            if until_step <= 0:
                yield False
                until_step = DOCUMENTS_IN_A_STEP
            until_step -= 1 + len(document) // STEP_BYTES
            try:
                if len(document) > LARGE_BYTES:
                    parsing = ThreadCall(parse_measurement, document, time_field, meta_field)
                    yield parsing
                    parsed.append((index, parsing.result))
                else:
                    parsed.append((index, parse_measurement(document, time_field, meta_field)))
            except CommandError as error:
                insert_reply.refuse(index, error)
                if insert.ordered:
                    break
        return by_series(parsed) if insert_reply.is_bulk else parsed

    def _stage_statements(
        self, insert: InsertCommand, collection: VirtualCollection, key: CombineKey, insert_reply: InsertReply
    ) -> Iterator[SliceResult]:
        """As ``_stage_documents``, for a retryable write: statements already written are not written again (W102)."""
        assert insert.txn_number is not None
        assert insert.statement_ids is not None
        transaction = self._statements.transaction((insert.session, key.identity), insert.txn_number)
        is_sought = self.may_be_written(transaction, collection)
        sought: list[tuple[Statement, Measurement]] | None = [] if is_sought else None
        buckets = self._catalog.collection(collection)
        until_step, end = DOCUMENTS_IN_A_STEP, len(insert.documents)
        for first in range(0, end, MOST):
            parsed = yield from self._parsed(insert, first, collection, insert_reply)
            for position, (index, measurement) in enumerate(parsed):
                if until_step <= 0 or (position and not position % BATCHES_IN_A_TURN):
                    yield not position % BATCHES_IN_A_TURN
                    until_step = DOCUMENTS_IN_A_STEP
                until_step -= 1
                if index >= end:
                    continue
                buckets = self._catalog.collection(collection)
                try:
                    self._stage_statement(
                        transaction, insert.statement_ids[index], measurement, buckets, key, insert_reply, index, sought
                    )
                except CommandError as error:
                    insert_reply.refuse(index, error)
                    end = index if insert.ordered else end
            if insert.ordered and insert_reply.has_refused:
                break
        if sought:
            measurements = [measurement for _, measurement in sought]
            self.restart_dedup.ask(
                collection,
                measurements,
                WriteConcern(key.write_concern),
                lambda answer: self._found_stored(sought, buckets, key, answer),
                until_now=transaction.is_sought,
            )

    def _found_stored(
        self,
        sought: Sequence[tuple[Statement, Measurement]],
        buckets: CollectionBuckets,
        key: CombineKey,
        answer: Found | CommandError,
    ) -> None:
        """Stage the statements that no earlier process has written, as ``answer`` says."""
        self._slices.start(self._after_lookup(sought, buckets, key, answer), self.kick)

    def _after_lookup(
        self,
        sought: Sequence[tuple[Statement, Measurement]],
        buckets: CollectionBuckets,
        key: CombineKey,
        answer: Found | CommandError,
    ) -> Iterator[SliceResult]:
        for position, (statement, measurement) in enumerate(sought):
            if position and not position % DOCUMENTS_IN_A_STEP:
                yield False
                buckets = self._catalog.collection(buckets.collection)
            if not is_settled_by(answer, position, statement):
                self._place(statement, 0, measurement, buckets, key)
        self._committer.kick()

    def _stage_statement(
        self,
        transaction: Transaction,
        number: int,
        measurement: Measurement,
        buckets: CollectionBuckets,
        key: CombineKey,
        insert_reply: ReplyTo,
        index: int,
        sought: list[tuple[Statement, Measurement]] | None,
    ) -> None:
        """Stage one statement, or append it to ``sought``, whose statements an earlier process may have written."""
        if number == NO_STATEMENT:
            insert_reply.expect()
            self._place(insert_reply, index, measurement, buckets, key)
            return
        deadline_seconds = self._committer.deadline_seconds()
        if is_recorded(transaction, number, insert_reply, index, deadline_seconds):
            return
        statement = Statement(transaction, number, has_id=b"_id" in measurement.columns)
        statement.is_bulk = insert_reply.is_bulk
        insert_reply.expect()
        statement.wait(insert_reply, index, deadline_seconds)
        if sought is None:
            self._place(statement, 0, measurement, buckets, key)
        else:
            sought.append((statement, measurement))

    def _place(
        self,
        writer: Statement | ReplyTo,
        index: int,
        measurement: Measurement,
        buckets: CollectionBuckets,
        key: CombineKey,
    ) -> None:
        batch = self._catalog.place(buckets, measurement, writer, index, key)
        if batch is None:
            return
        if batch.claim():
            batch.bulk = writer.is_bulk
            self._committer.submit(batch)
        elif batch.bulk and not writer.is_bulk:
            self._committer.hasten(batch)
