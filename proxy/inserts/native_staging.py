"""Stages documents for coalesced native inserts: the way of inserts while buckets are not used.

Documents are not parsed: the server checks them. Only those that an earlier process may have written are, because
stored rows are compared with them (``catalog.commit.restart_dedup``), and those of ordered inserts of several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from catalog.buckets.write_batch import CombineKey
from catalog.commit.restart_dedup import Found, RestartDedup
from catalog.commit.statements import Statement, StatementLog, Transaction
from catalog.errors import CommandError
from catalog.kernel import Measurement
from catalog.namespaces import VirtualCollection
from catalog.ports import WriteConcern
from proxy.inserts.coalescing import Coalescer
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_reply import InsertReply
from proxy.inserts.plain_insert import PlainInsert
from proxy.inserts.slices import SliceResult, Slices
from proxy.inserts.staging import NO_STATEMENT, ReplyTo, Staging, is_recorded, is_settled_by, measurement_of, parsed

DOCUMENTS_IN_A_STEP = 64


class _Sought(NamedTuple):
    """A statement that an earlier process may have written."""

    statement: Statement
    document: bytes
    measurement: Measurement


class NativeStaging(Staging):
    """Hands documents to a ``Coalescer``."""

    def __init__(
        self,
        coalescer: Coalescer,
        statements: StatementLog,
        restart_dedup: RestartDedup,
        slices: Slices,
    ) -> None:
        """``restart_dedup`` searches the collections themselves."""
        super().__init__(restart_dedup)
        self._coalescer = coalescer
        self._statements = statements
        self._slices = slices

    def stage_one(
        self,
        collection: VirtualCollection,
        document: bytes,
        transaction: Transaction | None,
        key: CombineKey,
        writer: PlainInsert,
    ) -> None:
        if transaction is None:
            self._coalescer.add(collection, key, writer, 0, document)
        else:
            self._stage_statement(transaction, 0, document, collection, key, writer, 0, None)

    def stage(
        self, insert: InsertCommand, collection: VirtualCollection, key: CombineKey, insert_reply: InsertReply
    ) -> Iterator[SliceResult]:
        """See ``Staging``.

        An ordered insert ends with the first document that is no measurement. An error of the server does not end it:
        its documents share commands. So the documents of an ordered insert are several only if some of them may have
        been executed before.
        """
        numbers = insert.statement_ids
        transaction: Transaction | None = None
        sought: list[_Sought] | None = None
        if numbers is not None:
            assert insert.txn_number is not None
            transaction = self._statements.transaction((insert.session, key.identity), insert.txn_number)
            sought = [] if self.may_be_written(transaction, collection) else None
        may_end = insert.ordered and len(insert.documents) > 1
        for index, document in enumerate(insert.documents):
            if index and not index % DOCUMENTS_IN_A_STEP:
                yield False
            try:
                if may_end:
                    measurement_of(document, collection)
                if transaction is None or numbers is None:
                    insert_reply.expect()
                    self._coalescer.add(collection, key, insert_reply, index, document, is_bulk=insert_reply.is_bulk)
                else:
                    self._stage_statement(
                        transaction, numbers[index], document, collection, key, insert_reply, index, sought
                    )
            except CommandError as error:
                insert_reply.refuse(index, error)
                if insert.ordered:
                    break
        if sought and transaction is not None:
            self._seek(sought, collection, key, until_now=transaction.is_sought)

    def _stage_statement(
        self,
        transaction: Transaction,
        number: int,
        document: bytes,
        collection: VirtualCollection,
        key: CombineKey,
        writer: ReplyTo,
        index: int,
        sought: list[_Sought] | None,
    ) -> None:
        if number == NO_STATEMENT:
            writer.expect()
            self._coalescer.add(collection, key, writer, index, document, is_bulk=writer.is_bulk)
            return
        deadline_seconds = self._coalescer.deadline_seconds()
        if is_recorded(transaction, number, writer, index, deadline_seconds):
            return
        statement = Statement(transaction, number, has_id=b"_id\0" in document)
        statement.is_bulk = writer.is_bulk
        writer.expect()
        statement.wait(writer, index, deadline_seconds)
        measurement = None if sought is None else parsed(document, collection)
        if sought is None or measurement is None:
            self._coalescer.add(collection, key, statement, 0, document, is_bulk=statement.is_bulk)
        else:
            sought.append(_Sought(statement, document, measurement))

    def _seek(
        self, sought: Sequence[_Sought], collection: VirtualCollection, key: CombineKey, *, until_now: bool
    ) -> None:
        self.restart_dedup.ask(
            collection,
            [each.measurement for each in sought],
            WriteConcern(key.write_concern),
            lambda answer: self._slices.start(self._after_lookup(sought, collection, key, answer), _no_pause),
            until_now=until_now,
        )

    def _after_lookup(
        self, sought: Sequence[_Sought], collection: VirtualCollection, key: CombineKey, answer: Found | CommandError
    ) -> Iterator[SliceResult]:
        for position, each in enumerate(sought):
            if position and not position % DOCUMENTS_IN_A_STEP:
                yield False
            statement = each.statement
            if not is_settled_by(answer, position, statement):
                self._coalescer.add(collection, key, statement, 0, each.document, is_bulk=statement.is_bulk)


def _no_pause() -> None:
    """Nothing follows a slice."""
