"""Inserts into virtual collections that the backend carries out itself: they are relayed as they came."""

from __future__ import annotations

from collections.abc import Sequence

from catalog.kernel import count_plain_times
from catalog.namespaces import VirtualCollection
from catalog.restart_dedup import RestartDedup
from catalog.statements import StatementLog
from proxy.inserts.insert_rates import InsertRates
from proxy.inserts.write_strategy import Way, WriteStrategy
from proxy.request.exchange import Exchange


class NativeInserts:
    """Decides which inserts these are, as ``strategy`` says, as retries demand, and as far as reads stay correct."""

    def __init__(self, strategy: WriteStrategy, statements: StatementLog, restart_dedup: RestartDedup) -> None:
        self._strategy = strategy
        self._statements = statements
        self._restart_dedup = restart_dedup
        self.fewest_bytes = strategy.fewest_bytes
        """The size of documents below which ``takes`` is always 0."""
        self.rates: InsertRates | None = None
        """Set while users or databases have limits: inserts that these concern are for the catalog."""
        self.measurements = 0
        """Documents of inserts that the backend has carried out itself, or refused."""

    def takes(
        self,
        exchange: Exchange,
        collection: VirtualCollection,
        size_bytes: int,
        pieces: Sequence[bytes],
        start: int,
        session: bytes,
        txn_number: int | None,
    ) -> int:
        """The number of documents if the insert must be relayed; 0 if it is for the catalog.

        ``pieces``, a list or tuple, are the documents or consist of them, and the first of them begins at ``start``;
        together they have ``size_bytes``. ``session``, the raw ``lsid``, and ``txn_number``
        are those of a retryable write.
        """
        if size_bytes < self.fewest_bytes:
            return 0
        is_native = self._strategy.way(collection, size_bytes) is Way.NATIVE
        if self.rates is not None and self.rates.concern(exchange, collection.namespace.database):
            # The backend would not let them wait.
            is_native = False
        client = (session, exchange.session.identity)
        latest = None if txn_number is None else self._statements.latest(client)
        if txn_number is not None:
            if latest is not None and latest.number >= txn_number:
                # A retry takes the way of the first try, whose statements are recorded there.
                is_native = latest.number == txn_number and latest.is_native
            elif self._restart_dedup.is_needed(first_of_session=latest is None):
                is_native = False
        if not is_native:
            return 0
        # The catalog refuses invalid times as the server does, and knows then that there are distant ones (Q12).
        count = count_plain_times(pieces, start, collection.options.time_field.encode())
        if count and txn_number is not None:
            self._statements.transaction(client, txn_number).is_native = True
        return count

    def begin(self, exchange: Exchange, collection: VirtualCollection, count: int, size_bytes: int) -> None:
        """Count and measure an insert that is about to be relayed; it has ``count`` documents of so many bytes."""
        self.measurements += count
        self.measure(exchange, collection, size_bytes)

    def measure(self, exchange: Exchange, collection: VirtualCollection, size_bytes: int) -> None:
        """Measure an insert of either way that has just begun, and whose meter is known."""
        if exchange.expects_reply:
            self._strategy.measure(exchange, collection, size_bytes)
