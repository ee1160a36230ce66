"""Limits the measurements per second of each user and database.

An insert above a limit waits until its measurements are allowed, in fair turns of the clients weighted by measurements,
and is refused if that takes too long. A large insert is allowed when nothing is owed, and makes the next ones wait for
as long as its measurements take. While an insert waits, it does not count as a running command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.inserts.insert_templates import InsertTemplate
from proxy.request.attempt import Refused
from proxy.request.exchange import Exchange
from proxy.request.limited import LimitBook, Limited, QueuedCommand, overloaded

StageInsert = Callable[[Exchange, InsertTemplate, Sequence[bytes], bytes, int | None], None]


class InsertRates:
    """Holds inserts back."""

    def __init__(self, book: LimitBook) -> None:
        self._book = book

    def concern(self, exchange: Exchange, database: str) -> bool:
        """Whether inserts of this client into this database have a rate."""
        both = (self._book.user(exchange.session.identity), self._book.database(database))
        return any(each is not None and each.limits.max_measurements_per_second for each in both)

    def holds(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        documents: Sequence[bytes],
        session: bytes,
        txn_number: int | None,
        stage: StageInsert,
    ) -> bool:
        """Whether the insert has to wait; then ``stage`` is called later with the same arguments, or it is refused."""
        client = exchange.session
        user = self._book.user(client.identity)
        database = self._book.database(template.collection.namespace.database)
        needed = [limited for limited in (user, database) if limited is not None]
        if not needed:
            return False
        return not _Payment(exchange, needed, template, documents, session, txn_number, stage).pay()


class _Payment:
    """The rates that one insert still has to meet."""

    __slots__ = ("_documents", "_exchange", "_needed", "_session", "_stage", "_template", "_txn_number")

    def __init__(
        self,
        exchange: Exchange,
        needed: list[Limited],
        template: InsertTemplate,
        documents: Sequence[bytes],
        session: bytes,
        txn_number: int | None,
        stage: StageInsert,
    ) -> None:
        self._exchange = exchange
        self._needed = needed
        self._template = template
        self._documents = documents
        self._session = session
        self._txn_number = txn_number
        self._stage = stage

    def pay(self) -> bool:
        """Whether all rates allow the insert now; otherwise it is queued, or refused."""
        count = len(self._documents)
        while self._needed:
            limited = self._needed[0]
            if not limited.pay(count):
                # What other commands need must not be occupied meanwhile.
                self._exchange.leave_place()
                client = self._exchange.session
                owner = client.owner
                limited.wait_for_rate(owner, QueuedCommand(self._exchange, count, self._paid, self._refuse))
                return False
            self._needed.pop(0)
        return True

    def _paid(self) -> None:
        self._needed.pop(0)
        if self.pay():
            self._stage(self._exchange, self._template, self._documents, self._session, self._txn_number)

    def _refuse(self) -> None:
        exchange, limited = self._exchange, self._needed[0]
        limited.counts.refused["measurements"] += 1
        reason = (
            f"limit of {limited.limits.max_measurements_per_second} measurements per second reached for "
            f"{limited.kind} {limited.name} ({limited.kind}_limits)"
        )
        exchange.end(Refused(overloaded(reason)))
