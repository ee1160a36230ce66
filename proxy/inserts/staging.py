"""The interface of the two ways in which documents of inserts are staged, and what both share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from catalog.buckets.write_batch import CombineKey
from catalog.commit.restart_dedup import Found, RestartDedup
from catalog.commit.statements import Statement, Transaction
from catalog.errors import CommandError
from catalog.kernel import Measurement, parse_measurement
from catalog.namespaces import VirtualCollection
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_reply import InsertReply
from proxy.inserts.plain_insert import PlainInsert
from proxy.inserts.slices import SliceResult

DOCUMENTS_IN_A_STEP = 16
STEP_BYTES = 4096
"""This many bytes of a document count as one more document."""
LARGE_BYTES = 256 * 1024
"""Larger documents are parsed in a thread."""

NO_STATEMENT: Final = -1
"""A document with this statement id is no statement, so a retry stores it again, as with servers."""

ReplyTo: TypeAlias = InsertReply | PlainInsert


class Staging:
    """Stages documents: hands them to what commits them, with the writer that gets each result once."""

    def __init__(self, restart_dedup: RestartDedup) -> None:
        self.restart_dedup = restart_dedup

    def may_be_written(self, transaction: Transaction, collection: VirtualCollection) -> bool:
        """Whether statements of this transaction may have been executed without being recorded."""
        if transaction.is_sought:
            return True
        return self.restart_dedup.is_needed(collection, first_of_session=not transaction.follows_another)

    def stage_one(
        self,
        collection: VirtualCollection,
        document: bytes,
        transaction: Transaction | None,
        key: CombineKey,
        writer: PlainInsert,
    ) -> None:
        """Stage one document, the first statement of ``transaction`` if it is retryable; raises ``CommandError``.

        Not for statements that an earlier process may have written.
        """
        raise NotImplementedError

    def stage(
        self, insert: InsertCommand, collection: VirtualCollection, key: CombineKey, insert_reply: InsertReply
    ) -> Iterator[SliceResult]:
        """Stage the documents of an insert, with pauses; raises ``CommandError`` if the command fails as a whole."""
        raise NotImplementedError

    def kick(self) -> None:
        """Start what follows from what was staged."""


def is_recorded(transaction: Transaction, number: int, writer: ReplyTo, index: int, deadline_seconds: float) -> bool:
    """Whether a statement was executed already, or is in progress; then ``writer`` gets its result (W102).

    Raises ``CommandError`` if its outcome will never be known.
    """
    known = transaction.under_way.get(number)
    if known is not None:
        writer.expect()
        known.wait(writer, index, deadline_seconds)
        return True
    if number in transaction.written:
        writer.expect()
        writer.settle((index,), None, transaction.unmet_write_concern)
        return True
    if number in transaction.lost:
        raise CommandError(1, "the outcome of this statement is unknown, so it is not executed again")
    return False


def is_settled_by(answer: Found | CommandError, position: int, statement: Statement) -> bool:
    """Whether a statement has its result by a look-up, where it was at this position; if not, it is to be written."""
    if isinstance(answer, CommandError):
        statement.settle((0,), answer, None)
    elif position in answer.written:
        statement.found(answer.acknowledgement)
    else:
        return False
    return True


def measurement_of(document: bytes, collection: VirtualCollection) -> Measurement:
    """The measurement; raises ``CommandError`` for a document that the server will refuse."""
    options = collection.options
    meta_field = None if options.meta_field is None else options.meta_field.encode()
    return parse_measurement(document, options.time_field.encode(), meta_field)


def parsed(document: bytes, collection: VirtualCollection) -> Measurement | None:
    """As ``measurement_of``; ``None`` for a document that the server will refuse."""
    try:
        return measurement_of(document, collection)
    except CommandError:
        return None
