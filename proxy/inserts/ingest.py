"""Inserts into virtual collections: straight from the socket into the shared catalog.

``submit`` is synchronous and starts no task: it stages the documents, claims the batches that nobody claimed, and
returns; the reply is made when the last of them is settled. Commands that are not plain inserts of documents
(unknown fields, wrong types, inside a transaction …) are declined, so that they are relayed and the backend, which
holds the same collection, answers them itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from catalog.catalog import BucketCatalog
from catalog.committer import Committer
from catalog.errors import BackendUnavailable, CommandError
from catalog.identity import Identity
from catalog.kernel import Measurement, parse_measurement
from catalog.namespaces import VirtualCollection
from catalog.open_bucket import CollectionBuckets
from catalog.ports import WriteConcern
from catalog.restart_dedup import Recalled
from catalog.statements import Statement, StatementLog, Transaction
from catalog.write_batch import CombineKey
from proxy.inserts.insert_command import (
    MAX_DOCUMENTS,
    InsertCommand,
    parse_insert,
    takes_inserts,
    too_many_documents,
    with_documents,
)
from proxy.inserts.insert_port import ReplyingWriter
from proxy.inserts.insert_reply import InsertReply
from proxy.inserts.insert_templates import InsertTemplate, InsertTemplates
from proxy.request.authorisation import insert_actions
from proxy.request.command import Command
from proxy.request.session import Session

BATCHES_IN_A_TURN = 250
"""So many new batches of one command are staged in a turn of the event loop."""


@dataclass(slots=True)
class _Held:
    """An insert that waits because too much is pending."""

    insert: InsertCommand
    collection: VirtualCollection
    identity: Identity
    reply: Callable[[bytes | None], None]
    deadline_seconds: float


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
    ) -> None:
        """Over so many unsettled documents, or bytes of them, further inserts wait unstaged, in order of arrival.

        ``retryable_writes``: the backend keeps transaction numbers, so the proxy does too.
        """
        self._catalog = catalog
        self._committer = committer
        self._statements = statements
        self._max_pending_bytes = max_pending_bytes
        self._max_pending_measurements = max_pending_measurements
        self._retryable_writes = retryable_writes
        self._repeated = InsertTemplates()
        self.repeated = self._repeated.find
        self._held: deque[_Held] = deque()
        self._releasing = False
        self.pending_bytes = 0
        self.pending_measurements = 0

    def submit(
        self,
        session: Session,
        command: Command,
        collection: VirtualCollection,
        reply: Callable[[bytes | None], None],
    ) -> bool:
        """See ``proxy.request.ports.Ingest``."""
        if not takes_inserts(collection):
            return False
        insert = parse_insert(command, retryable_writes=self._retryable_writes)
        if insert is None:
            return False
        self._repeated.remember(command, insert, collection, insert_actions(command))
        self.take(insert, collection, session.identity, reply)
        return True

    def submit_known(
        self,
        session: Session,
        repeated: InsertTemplate,
        documents: Sequence[bytes],
        txn_number: int | None,
        reply: Callable[[bytes | None], None],
    ) -> None:
        """As ``submit`` for a command that was seen before; its collection must be what it was then."""
        if len(documents) > MAX_DOCUMENTS:
            raise CommandError(16, too_many_documents(len(documents)))
        insert = with_documents(repeated.insert, documents, txn_number)
        self.take(insert, repeated.collection, session.identity, reply)

    def submit_one(
        self,
        session: Session,
        repeated: InsertTemplate,
        document: bytes,
        txn_number: int | None,
        writer: ReplyingWriter,
    ) -> None:
        """See ``proxy.request.ports.Ingest``."""
        identity = session.identity
        if self._held or self._is_full:
            insert = with_documents(repeated.insert, (document,), txn_number)
            self.take(insert, repeated.collection, identity, writer.reply)
            return
        transaction: Transaction | None = None
        if txn_number is not None:
            try:
                transaction = self._statements.transaction((repeated.insert.session, identity), txn_number)
            except CommandError:
                transaction = None
            if transaction is None or self._may_be_written(transaction):
                insert = with_documents(repeated.insert, (document,), txn_number)
                self._stage(insert, repeated.collection, identity, writer.reply)
                return
        self.pending_bytes += len(document)
        self.pending_measurements += 1
        try:
            self._stage_one(repeated, document, transaction, repeated.key(identity), writer)
        except CommandError as error:
            writer.settle((0,), error, None)
        except Exception as error:  # noqa: BLE001 - reported
            self._committer.report(error)
            writer.settle((0,), _internal_error(error), None)
        if self._catalog.has_work:
            self._committer.kick()

    def _stage_one(
        self,
        repeated: InsertTemplate,
        document: bytes,
        transaction: Transaction | None,
        key: CombineKey,
        writer: ReplyingWriter,
    ) -> None:
        catalog = self._catalog
        buckets = catalog.collection(repeated.collection)
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
            catalog.waited(batch)

    def _may_be_written(self, transaction: Transaction) -> bool:
        """Whether an earlier process may have written statements of this transaction."""
        return self._committer.recall.is_needed(first_of_session=not transaction.follows_another)

    def settled_one(self, size_bytes: int) -> None:
        """See ``proxy.request.ports.Ingest``."""
        self.pending_bytes -= size_bytes
        self.pending_measurements -= 1
        if self._held:
            self._release()

    def take(
        self,
        insert: InsertCommand,
        collection: VirtualCollection,
        identity: Identity,
        reply: Callable[[bytes | None], None],
    ) -> None:
        """Stage an insert now or, while too much is pending, in its turn; ``reply`` is called once."""
        if self._held or self._is_full:
            self._held.append(_Held(insert, collection, identity, reply, self._committer.deadline_seconds()))
        else:
            self._stage(insert, collection, identity, reply)

    @property
    def _is_full(self) -> bool:
        return (
            self.pending_bytes > self._max_pending_bytes or self.pending_measurements > self._max_pending_measurements
        )

    def _stage(
        self,
        insert: InsertCommand,
        collection: VirtualCollection,
        identity: Identity,
        reply: Callable[[bytes | None], None],
    ) -> None:
        size_bytes, count = insert.size_bytes, len(insert.documents)
        self.pending_bytes += size_bytes
        self.pending_measurements += count

        def settled(document: bytes | None) -> None:
            self.pending_bytes -= size_bytes
            self.pending_measurements -= count
            reply(document)
            if self._held:
                self._release()

        submission = InsertReply(insert, settled)
        key = CombineKey(insert.write_concern, identity)
        stage = self._stage_documents if insert.statement_ids is None else self._stage_statements
        self._go_on(stage(insert, collection, key, submission), submission)

    def _go_on(self, staging: Iterator[None], submission: InsertReply) -> None:
        """Stage until the next pause, and the rest in the next turn of the event loop."""
        try:
            for _ in staging:
                if self._catalog.has_work:
                    self._committer.kick()
                asyncio.get_running_loop().call_soon(self._go_on, staging, submission)
                return
        except CommandError as error:
            submission.fail(error)
        except Exception as error:  # noqa: BLE001 - reported; what is staged already is settled all the same
            self._committer.report(error)
            submission.fail(_internal_error(error))
        if self._catalog.has_work:
            self._committer.kick()
        submission.staged()

    def _release(self) -> None:
        if self._releasing:
            # Each may be settled while it is staged; without this they would nest as deep as there are many.
            return
        self._releasing = True
        try:
            while self._held and not self._is_full:
                held = self._held.popleft()
                if self._committer.is_over(held.deadline_seconds):
                    self._turn_away(held)
                else:
                    self._stage(held.insert, held.collection, held.identity, held.reply)
        finally:
            self._releasing = False

    @staticmethod
    def _turn_away(held: _Held) -> None:
        """It has waited as long as a client waits for a server; nothing of it was written."""
        submission = InsertReply(held.insert, held.reply)
        submission.fail(BackendUnavailable("the backend is too slow for what is pending already", code=262))
        submission.staged()

    def _stage_documents(
        self, insert: InsertCommand, collection: VirtualCollection, key: CombineKey, submission: InsertReply
    ) -> Iterator[None]:
        """Pauses when many buckets are concerned: their first batches leave while the rest is staged."""
        buckets = self._catalog.collection(collection)
        place, submit = self._catalog.place, self._committer.submit
        previous, until_pause = None, BATCHES_IN_A_TURN
        for index, document in enumerate(insert.documents):
            if not until_pause:
                yield
                buckets, until_pause = self._catalog.collection(collection), BATCHES_IN_A_TURN
            try:
                measurement = parse_measurement(document, buckets.time_field, buckets.meta_field)
                batch = place(buckets, measurement, submission, index, key)
            except CommandError as error:
                submission.refuse(index, error)
                if insert.ordered:
                    break
                continue
            submission.expect()
            if batch is None:
                continue
            if batch.claim():
                submit(batch)
                until_pause -= 1
            elif batch is not previous:
                self._catalog.waited(batch)
            previous = batch

    def _stage_statements(
        self, insert: InsertCommand, collection: VirtualCollection, key: CombineKey, submission: InsertReply
    ) -> Iterator[None]:
        """A retryable write: what was written already is not written again (W102). As ``_stage_documents``."""
        assert insert.txn_number is not None
        assert insert.statement_ids is not None
        transaction = self._statements.transaction((insert.session, key.identity), insert.txn_number)
        sought: list[tuple[Statement, Measurement]] | None = [] if self._may_be_written(transaction) else None
        buckets = self._catalog.collection(collection)
        for index, (document, number) in enumerate(zip(insert.documents, insert.statement_ids, strict=True)):
            if index and not index % BATCHES_IN_A_TURN and sought is None:
                yield
                buckets = self._catalog.collection(collection)
            try:
                self._stage_statement(transaction, number, document, buckets, key, submission, index, sought)
            except CommandError as error:
                submission.refuse(index, error)
                if insert.ordered:
                    break
        if sought:
            measurements = [measurement for _, measurement in sought]
            self._committer.recall.ask(
                buckets,
                measurements,
                WriteConcern(key.write_concern),
                lambda answer: self._recalled(sought, buckets, key, answer),
            )

    def _recalled(
        self,
        sought: Sequence[tuple[Statement, Measurement]],
        buckets: CollectionBuckets,
        key: CombineKey,
        answer: Recalled | CommandError,
    ) -> None:
        """It is known now which statements an earlier process had written; the others are staged."""
        for statement, measurement in sought:
            if isinstance(answer, CommandError):
                statement.settle((0,), answer, None)
            elif measurement.columns.get(b"_id") in answer.ids:
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
        submission: InsertReply | ReplyingWriter,
        index: int,
        sought: list[tuple[Statement, Measurement]] | None,
    ) -> None:
        """``sought`` takes it when an earlier process may have written it."""
        known = transaction.under_way.get(number)
        if known is not None:
            submission.expect()
            known.wait(submission, index, self._committer.deadline_seconds())
            return
        if number in transaction.written:
            submission.expect()
            submission.settle((index,), None, transaction.unmet_write_concern)
            return
        if number in transaction.lost:
            raise CommandError(1, "the outcome of this statement is unknown, so it is not executed again")
        measurement = parse_measurement(document, buckets.time_field, buckets.meta_field)
        statement = Statement(transaction, number)
        submission.expect()
        statement.wait(submission, index, self._committer.deadline_seconds())
        if sought is None:
            self._place_statement(statement, measurement, buckets, key)
        else:
            sought.append((statement, measurement))

    def _place_statement(
        self, statement: Statement, measurement: Measurement, buckets: CollectionBuckets, key: CombineKey
    ) -> None:
        batch = self._catalog.place(buckets, measurement, statement, 0, key)
        if batch is not None and batch.claim():
            self._committer.submit(batch)


def _internal_error(error: Exception) -> CommandError:
    return CommandError(1, f"internal error while staging measurements: {error!r}")
