"""Inserts for the backend that another process may have executed otherwise, so that the backend does not know them.

The backend records the statements that were relayed to it. It has no record of those that a process has stored in
buckets, or together with the documents of others, before the access changed or the process ended. So their rows are
looked up first. If none is stored, the insert is relayed. Otherwise what was found is recorded, and the insert is
staged, which stores the rest only.
"""

from __future__ import annotations

from collections.abc import Iterator

from catalog.commit.restart_dedup import Found, OnFound, RestartDedup
from catalog.commit.statements import NETWORK_TIMEOUT, Statement, Transaction, withdrawn
from catalog.errors import BackendUnavailable, CommandError
from catalog.kernel import Measurement, parse_measurement
from catalog.namespaces import VirtualCollection
from catalog.ports import WriteConcern
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.slices import SliceResult, ThreadCall
from proxy.inserts.staging import LARGE_BYTES

DOCUMENTS_IN_A_STEP = 64


class SoughtInsert:
    """Looks up the rows of one insert; a copy of it that arrives meanwhile waits for the result."""

    def __init__(
        self,
        insert: InsertCommand,
        collection: VirtualCollection,
        transaction: Transaction,
        restart_dedup: RestartDedup,
        ended: OnFound,
    ) -> None:
        """``ended`` is called once, with what was found and is recorded now, or with an error."""
        self._insert = insert
        self._collection = collection
        self._transaction = transaction
        self._restart_dedup = restart_dedup
        self._ended = ended
        self._statements: list[Statement] = []
        self._measurements: list[Measurement] = []

    def steps(self) -> Iterator[SliceResult]:
        """Parse the documents and ask; work for ``Slices``. What is no measurement is not stored anywhere."""
        insert, transaction, options = self._insert, self._transaction, self._collection.options
        assert insert.statement_ids is not None
        time_field = options.time_field.encode()
        meta_field = None if options.meta_field is None else options.meta_field.encode()
        transaction.commands += 1
        for index, document in enumerate(insert.documents):
            if index and not index % DOCUMENTS_IN_A_STEP:
                yield False
            try:
                if len(document) > LARGE_BYTES:
                    parsing = ThreadCall(parse_measurement, document, time_field, meta_field)
                    yield parsing
                    measurement = parsing.result
                else:
                    measurement = parse_measurement(document, time_field, meta_field)
            except CommandError:
                continue
            self._measurements.append(measurement)
            self._statements.append(Statement(transaction, insert.statement_ids[index]))
        transaction.commands -= 1
        if not self._measurements:
            self._answered(Found(frozenset()))
            return
        write_concern = WriteConcern(insert.write_concern)
        until_now = transaction.is_sought
        self._restart_dedup.ask(
            self._collection, self._measurements, write_concern, self._answered, until_now=until_now
        )

    def _answered(self, answer: Found | CommandError) -> None:
        transaction, statements = self._transaction, self._statements
        if transaction.is_withdrawn and not isinstance(answer, CommandError):
            answer = withdrawn()
        if isinstance(answer, CommandError):
            rest: CommandError = answer
            found: frozenset[int] = frozenset()
        else:
            rest = BackendUnavailable("the statement is being executed", code=NETWORK_TIMEOUT)
            found = answer.written
            if found:
                for position in found:
                    statements[position].found(answer.acknowledgement)
            else:
                transaction.is_native = True
        for position, statement in enumerate(statements):
            if position not in found:
                # A copy that waits is sent again by its driver.
                statement.settle((0,), rest, None)
        self._ended(answer)
