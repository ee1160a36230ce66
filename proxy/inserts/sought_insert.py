"""Inserts for the backend that another process may have executed otherwise, so that the backend does not know them.

The backend records the statements that were relayed to it. It has no record of those that a process has stored in
buckets, or together with the documents of others, before the access changed or the process ended. So their rows are
looked up first. If none is stored, the insert is relayed. Otherwise what was found is recorded, and the insert is
staged, which stores the rest only. It is staged, too, if other statements of its number were staged meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator

from catalog.commit.reclaiming import taken
from catalog.commit.restart_dedup import Found, OnFound, RestartDedup
from catalog.commit.statements import NETWORK_TIMEOUT, Statement, Transaction
from catalog.errors import BackendUnavailable, CommandError
from catalog.kernel import Measurement
from catalog.namespaces import VirtualCollection
from catalog.ports import WriteConcern
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.native_staging import DOCUMENTS_IN_A_STEP
from proxy.inserts.slices import SliceResult, ThreadCall
from proxy.inserts.staging import LARGE_BYTES, measurement_of


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
        insert, transaction, collection = self._insert, self._transaction, self._collection
        assert insert.statement_ids is not None
        transaction.commands += 1
        for index, document in enumerate(insert.documents):
            if index and not index % DOCUMENTS_IN_A_STEP:
                yield False
            try:
                if len(document) > LARGE_BYTES:
                    parsing = ThreadCall(measurement_of, document, collection)
                    yield parsing
                    measurement = parsing.result
                else:
                    measurement = measurement_of(document, collection)
            except CommandError:
                continue
            self._measurements.append(measurement)
            self._statements.append(Statement(transaction, insert.statement_ids[index]))
        transaction.commands -= 1
        if not self._measurements:
            self._answered(Found(frozenset()))
            return
        write_concern, until_now = WriteConcern(insert.write_concern), not transaction.may_be_relayed
        self._restart_dedup.ask(collection, self._measurements, write_concern, self._answered, until_now=until_now)

    def _answered(self, answer: Found | CommandError) -> None:
        transaction = self._transaction
        if any(statement.is_contested for statement in self._statements) and not isinstance(answer, CommandError):
            # Another process may have executed it meanwhile, without relaying it.
            answer = taken()
        if isinstance(answer, CommandError):
            found, rest = Found(frozenset()), answer
        else:
            # A copy that waits is sent again by its driver.
            found, rest = answer, BackendUnavailable("the statement is being executed", code=NETWORK_TIMEOUT)
            transaction.is_native = transaction.is_native or not (found.written or self._is_partly_staged())
        for position, statement in enumerate(self._statements):
            if position in found.written:
                statement.found(found.acknowledgement)
            else:
                statement.settle((0,), rest, None)
        self._ended(answer)

    def _is_partly_staged(self) -> bool:
        """Whether this process executes other statements of this number, or has."""
        transaction, own = self._transaction, set(self._statements)
        if transaction.commands or transaction.written.runs or transaction.lost.runs:
            return True
        return any(each not in own for each in transaction.under_way.values())
