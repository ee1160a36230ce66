"""Stages inserts into virtual collections in the shared catalog.

``submit`` is synchronous and starts no task: it stages the documents, claims batches that have no claimant, and
returns. The reply is built when the last batch is settled. Other inserts (with unknown fields, wrong types, in a
transaction …) are not handled here: they are relayed to the backend, which has the same collection.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from catalog.catalog import BucketCatalog
from catalog.committer import Committer
from catalog.errors import CommandError
from catalog.identity import Identity
from catalog.kernel import Measurement, parse_measurement
from catalog.namespaces import VirtualCollection
from catalog.open_bucket import CollectionBuckets
from catalog.ports import WriteConcern
from catalog.restart_dedup import Found
from catalog.statements import Statement, StatementLog, Transaction
from catalog.write_batch import CombineKey, WriteBatch
from proxy.inserts.held_insert import HeldInsert, HeldInserts, Pending, Recipient, StagedInsert
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_rates import InsertRates
from proxy.inserts.insert_reply import InsertReply
from proxy.inserts.insert_templates import InsertTemplate
from proxy.inserts.native_inserts import NativeInserts
from proxy.inserts.plain_insert import PlainInsert
from proxy.inserts.slices import Slices, Step, ThreadCall
from proxy.inserts.write_strategy import WriteStrategy
from proxy.request.exchange import Exchange

BATCHES_IN_A_TURN = 250
"""Maximum number of new batches of one command that are staged in one turn of the event loop."""

DOCUMENTS_IN_A_STEP = 16
STEP_BYTES = 4096
"""Every so many bytes of a document count as one more document."""
LARGE_BYTES = 256 * 1024
"""Larger documents are parsed in a thread."""


class InsertHandler:
    """Stages inserts of all clients in one catalog."""

    def __init__(
        self,
        catalog: BucketCatalog,
        committer: Committer,
        statements: StatementLog,
        *,
        max_pending_bytes: int,
        max_pending_measurements: int = 200_000,
        retryable_writes: bool,
        strategy: WriteStrategy | None = None,
        slices: Slices | None = None,
    ) -> None:
        """Above either limit of unsettled documents, further inserts wait unstaged; see ``HeldInserts``.

        ``retryable_writes``: the backend supports retryable writes, so the proxy does too. ``strategy``: which inserts
        the backend carries out itself; by default none.
        """
        self._catalog = catalog
        self._committer = committer
        self._statements = statements
        self.retryable_writes = retryable_writes
        strategy = strategy or WriteStrategy("catalog", time.monotonic)
        self.native = NativeInserts(strategy, statements, committer.restart_dedup)
        self.rates: InsertRates | None = None
        """Set while users or databases have limits."""
        self._slices = slices or Slices()
        self.pending = Pending(max_pending_bytes, max_pending_measurements)
        self._held = HeldInserts(self.pending, committer.is_over)

    def limit(self, max_pending_bytes: int, max_pending_measurements: int) -> None:
        """Change the limits of unsettled documents, and stage waiting inserts for which there is room now."""
        self._held.limit(max_pending_bytes, max_pending_measurements)
        self._release_if_held()

    def submit(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        documents: Sequence[bytes],
        session: bytes,
        txn_number: int | None,
    ) -> None:
        """See ``proxy.inserts.insert_port.Ingest``."""
        if self.rates is not None and self.rates.holds(
            exchange, template, documents, session, txn_number, self._submit
        ):
            return
        self._submit(exchange, template, documents, session, txn_number)

    def _submit(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        documents: Sequence[bytes],
        session: bytes,
        txn_number: int | None,
    ) -> None:
        if len(documents) == 1 and self._submit_one(exchange, template, documents[0], session, txn_number):
            return
        insert, client = template.command(documents, session, txn_number), exchange.session
        self.native.measure(exchange, template.collection, insert.size_bytes)
        self.take(
            insert, template.collection, client.identity, Recipient(exchange.reply, client, exchange.queued, exchange)
        )

    def _submit_one(
        self, exchange: Exchange, template: InsertTemplate, document: bytes, session: bytes, txn_number: int | None
    ) -> bool:
        """As ``submit``, for one document without an ``InsertCommand``; false, and no effect, if it needs one."""
        if self._held or self.pending.is_full or len(document) > LARGE_BYTES:
            return False
        if template.numbers_statements or not template.insert.expects_reply:
            return False
        identity = exchange.session.identity
        transaction: Transaction | None = None
        if txn_number is not None:
            try:
                transaction = self._statements.transaction((session, identity), txn_number)
            except CommandError:
                return False
            if self._may_be_written(transaction):
                return False
        pending = self.pending
        pending.size_bytes += len(document)
        pending.measurements += 1
        writer = PlainInsert(self, exchange, template, len(document))
        try:
            self._stage_one(template, document, transaction, template.key(identity), writer)
        except CommandError as error:
            writer.settle((0,), error, None)
        except Exception as error:  # noqa: BLE001 - reported
            self._committer.report(error)
            writer.settle((0,), _internal_error(error), None)
        if self._catalog.has_work:
            self._committer.kick()
        return True

    def _stage_one(
        self,
        template: InsertTemplate,
        document: bytes,
        transaction: Transaction | None,
        key: CombineKey,
        writer: PlainInsert,
    ) -> None:
        catalog = self._catalog
        buckets = catalog.collection(template.collection)
        if transaction is not None:
            self._stage_statement(transaction, 0, document, buckets, key, writer, 0, None)
            return
        measurement = parse_measurement(document, buckets.time_field, buckets.meta_field)
        batch = catalog.place(buckets, measurement, writer, 0, key)
        if batch is None:
            return
        if batch.claim():
            self._committer.submit(batch)
        else:
            self._joined(batch, is_bulk=False)

    def _joined(self, batch: WriteBatch, *, is_bulk: bool) -> None:
        """A writer has joined a batch that another one has claimed."""
        self._catalog.waited(batch)
        if batch.bulk and not is_bulk:
            self._committer.hasten(batch)

    def _may_be_written(self, transaction: Transaction) -> bool:
        """Whether an earlier process may have written statements of this transaction."""
        return self._committer.restart_dedup.is_needed(first_of_session=not transaction.follows_another)

    def uncommitted(self) -> tuple[int, int]:
        """Measurements that are staged and not settled, also in the reserve, and the bytes of their documents."""
        pending, reserve = self.pending, self._held.reserve
        return pending.measurements + reserve.measurements, pending.size_bytes + reserve.size_bytes

    def settled_one(self, size_bytes: int) -> None:
        """A single document of this size is settled; called by its writer."""
        pending = self.pending
        pending.size_bytes -= size_bytes
        pending.measurements -= 1
        if self._held:
            self._release()

    def take(self, insert: InsertCommand, collection: VirtualCollection, identity: Identity, reply: Recipient) -> None:
        """Stage an insert now or, while the limits are exceeded, when its turn comes; ``reply`` is called once."""
        if self._held or self.pending.is_full:
            held = HeldInsert(insert, collection, identity, reply, self._committer.deadline_seconds())
            self._held.add(held, self._stage_held)
        else:
            self._stage(insert, collection, identity, reply, self.pending)

    def _stage(
        self,
        insert: InsertCommand,
        collection: VirtualCollection,
        identity: Identity,
        reply: Recipient,
        pending: Pending,
    ) -> None:
        staged = StagedInsert(pending, insert.size_bytes, len(insert.documents), reply, self._release_if_held)
        insert_reply = InsertReply(insert, staged.settled, staged.stored, reply)
        key = CombineKey(insert.write_concern, identity)
        stage = self._stage_documents if insert.statement_ids is None else self._stage_statements
        work = self._staging(stage(insert, collection, key, insert_reply), insert_reply)
        self._slices.start(work, self._kick)

    def _staging(self, staging: Iterator[Step], insert_reply: InsertReply) -> Iterator[Step]:
        try:
            yield from staging
        except CommandError as error:
            insert_reply.fail(error)
        except Exception as error:  # noqa: BLE001 - reported; what is staged already is settled all the same
            self._committer.report(error)
            insert_reply.fail(_internal_error(error))
        self._kick()
        insert_reply.staged()

    def _kick(self) -> None:
        if self._catalog.has_work:
            self._committer.kick()

    def _release_if_held(self) -> None:
        if self._held:
            self._release()

    def _release(self) -> None:
        self._held.release(self._stage_held)

    def _stage_held(self, held: HeldInsert, pending: Pending) -> None:
        held.reply.waited(held.held_at_seconds)
        self._stage(held.insert, held.collection, held.identity, held.reply, pending)

    def _stage_documents(
        self, insert: InsertCommand, collection: VirtualCollection, key: CombineKey, insert_reply: InsertReply
    ) -> Iterator[Step]:
        """Stage the documents. Pauses after many new batches, so that these are committed meanwhile."""
        buckets = self._catalog.collection(collection)
        place, submit, is_bulk = self._catalog.place, self._committer.submit, insert_reply.is_bulk
        previous, until_pause, until_step = None, BATCHES_IN_A_TURN, DOCUMENTS_IN_A_STEP
        for index, document in enumerate(insert.documents):
            if until_step <= 0 or not until_pause:
                yield not until_pause
                buckets, until_step = self._catalog.collection(collection), DOCUMENTS_IN_A_STEP
                until_pause = until_pause or BATCHES_IN_A_TURN
            until_step -= 1 + len(document) // STEP_BYTES
            try:
                if len(document) > LARGE_BYTES:
                    parsing = ThreadCall(parse_measurement, document, buckets.time_field, buckets.meta_field)
                    yield parsing
                    buckets, measurement = self._catalog.collection(collection), parsing.result
                else:
                    measurement = parse_measurement(document, buckets.time_field, buckets.meta_field)
                batch = place(buckets, measurement, insert_reply, index, key)
            except CommandError as error:
                insert_reply.refuse(index, error)
                if insert.ordered:
                    break
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

    def _stage_statements(
        self, insert: InsertCommand, collection: VirtualCollection, key: CombineKey, insert_reply: InsertReply
    ) -> Iterator[Step]:
        """As ``_stage_documents``, for a retryable write: statements already written are not written again (W102)."""
        assert insert.txn_number is not None
        assert insert.statement_ids is not None
        transaction = self._statements.transaction((insert.session, key.identity), insert.txn_number)
        sought: list[tuple[Statement, Measurement]] | None = [] if self._may_be_written(transaction) else None
        buckets = self._catalog.collection(collection)
        until_step = DOCUMENTS_IN_A_STEP
        for index, (document, number) in enumerate(zip(insert.documents, insert.statement_ids, strict=True)):
            if until_step <= 0 or (index and not index % BATCHES_IN_A_TURN):
                yield not index % BATCHES_IN_A_TURN
                buckets, until_step = self._catalog.collection(collection), DOCUMENTS_IN_A_STEP
            until_step -= 1 + len(document) // STEP_BYTES
            try:
                parsing: ThreadCall | None = None
                if len(document) > LARGE_BYTES:
                    yield (parsing := ThreadCall(parse_measurement, document, buckets.time_field, buckets.meta_field))
                    buckets = self._catalog.collection(collection)
                self._stage_statement(transaction, number, document, buckets, key, insert_reply, index, sought, parsing)
            except CommandError as error:
                insert_reply.refuse(index, error)
                if insert.ordered:
                    break
        if sought:
            measurements = [measurement for _, measurement in sought]
            self._committer.restart_dedup.ask(
                buckets,
                measurements,
                WriteConcern(key.write_concern),
                lambda answer: self._found_stored(sought, buckets, key, answer),
            )

    def _found_stored(
        self,
        sought: Sequence[tuple[Statement, Measurement]],
        buckets: CollectionBuckets,
        key: CombineKey,
        answer: Found | CommandError,
    ) -> None:
        """Stage the statements that no earlier process has written, as ``answer`` says."""
        self._slices.start(self._after_lookup(sought, buckets, key, answer), self._kick)

    def _after_lookup(
        self,
        sought: Sequence[tuple[Statement, Measurement]],
        buckets: CollectionBuckets,
        key: CombineKey,
        answer: Found | CommandError,
    ) -> Iterator[Step]:
        for position, (statement, measurement) in enumerate(sought):
            if position and not position % DOCUMENTS_IN_A_STEP:
                yield False
                buckets = self._catalog.collection(buckets.collection)
            if isinstance(answer, CommandError):
                statement.settle((0,), answer, None)
            elif position in answer.written:
                statement.settle((0,), None, answer.acknowledgement)
            else:
                self._place_statement(statement, measurement, buckets, key)
        self._committer.kick()

    def _stage_statement(
        self,
        transaction: Transaction,
        number: int,
        document: bytes,
        buckets: CollectionBuckets,
        key: CombineKey,
        insert_reply: InsertReply | PlainInsert,
        index: int,
        sought: list[tuple[Statement, Measurement]] | None,
        parsing: ThreadCall | None = None,
    ) -> None:
        """Stage one statement, or append it to ``sought``, whose statements an earlier process may have written.

        ``parsing`` has the parsed document if that was done in a thread.
        """
        known = transaction.under_way.get(number)
        if known is not None:
            insert_reply.expect()
            known.wait(insert_reply, index, self._committer.deadline_seconds())
            return
        if number in transaction.written:
            insert_reply.expect()
            insert_reply.settle((index,), None, transaction.unmet_write_concern)
            return
        if number in transaction.lost:
            raise CommandError(1, "the outcome of this statement is unknown, so it is not executed again")
        if parsing is not None:
            measurement: Measurement = parsing.result
        else:
            measurement = parse_measurement(document, buckets.time_field, buckets.meta_field)
        statement = Statement(transaction, number)
        statement.is_bulk = insert_reply.is_bulk
        insert_reply.expect()
        statement.wait(insert_reply, index, self._committer.deadline_seconds())
        if sought is None:
            self._place_statement(statement, measurement, buckets, key)
        else:
            sought.append((statement, measurement))

    def _place_statement(
        self, statement: Statement, measurement: Measurement, buckets: CollectionBuckets, key: CombineKey
    ) -> None:
        batch = self._catalog.place(buckets, measurement, statement, 0, key)
        if batch is None:
            return
        if batch.claim():
            batch.bulk = statement.is_bulk
            self._committer.submit(batch)
        elif batch.bulk and not statement.is_bulk:
            self._committer.hasten(batch)


def _internal_error(error: Exception) -> CommandError:
    return CommandError(1, f"internal error while staging measurements: {error!r}")
