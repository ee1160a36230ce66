"""Inserts into virtual collections that the backend carries out itself: they are relayed as they came."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Final

from catalog.commit.restart_dedup import RestartDedup
from catalog.commit.statements import StatementLog, Transaction
from catalog.commit.tenure import SessionKey
from catalog.identity import Identity
from catalog.kernel import count_plain_times
from catalog.namespaces import Namespace, VirtualCollection
from proxy.inserts.insert_rates import InsertRates
from proxy.inserts.write_strategy import InsertPath, WriteStrategy
from proxy.request.exchange import Exchange
from proxy.wire.message import length_at

_EMPTY_TIMESTAMP: Final = bytes(9)
"""Behind the name of a field and its end."""
LARGE_BYTES: Final = 32 * 1024
"""With coalescing, inserts from this size on are relayed alone."""


class Tried(Enum):
    """Who may have executed a statement, or some of its documents."""

    NOBODY = auto()
    BACKEND = auto()
    """It was relayed: the backend records its documents."""
    HERE = auto()
    """This process records its documents, or those of a later number of the session."""
    PERHAPS = auto()
    """Another process that cannot be asked, or the backend without a record here: only the stored rows can tell."""


class NativeInserts:
    """Decides which inserts these are, as ``strategy`` says, as retries demand, and as far as reads stay correct."""

    def __init__(
        self,
        strategy: WriteStrategy,
        statements: StatementLog,
        restart_dedup: RestartDedup,
        may_insert: Callable[[Namespace], bool] = lambda namespace: True,
    ) -> None:
        """``may_insert``: whether the proxy's own account may insert into this collection."""
        self._strategy = strategy
        self.coalesces = False
        """Whether all other inserts are coalesced into native ones, and not staged in the catalog."""
        self._may_insert = may_insert
        self._statements = statements
        self._restart_dedup = restart_dedup
        self.rates: InsertRates | None = None
        """Set while users or databases have limits: inserts that these concern are for the catalog."""
        self.measurements = 0
        """Documents of inserts that the backend has carried out itself, or refused."""
        self.fewest_bytes = strategy.fewest_bytes
        """The size of documents below which ``takes`` is always 0."""
        self.relays_distant_times: Callable[[VirtualCollection], None] = lambda collection: None
        """Called with the collection of a retry that is relayed and may have times of which reads must know (Q12)."""

    def coalesce(self, *, is_on: bool) -> None:
        """Whether inserts that are not relayed are coalesced from now on."""
        self.coalesces = is_on
        if is_on:
            # It stays so: retries of small inserts that were relayed must be relayed, too.
            self.fewest_bytes = 1

    def takes(
        self,
        exchange: Exchange,
        collection: VirtualCollection,
        size_bytes: int,
        pieces: Sequence[bytes],
        start: int,
        session: bytes,
        txn_number: int | None,
        *,
        ordered: bool,
    ) -> int:
        """The number of documents if the insert must be relayed; 0 if it is to be staged.

        ``pieces``, a list or tuple, are the documents or consist of them, and the first of them begins at ``start``;
        together they have ``size_bytes``. ``session``, the raw ``lsid``, and ``txn_number``
        are those of a retryable write.
        """
        if self.coalesces:
            return self._relays(exchange, collection, size_bytes, pieces, start, session, txn_number, ordered=ordered)
        client = (session, exchange.session.identity)
        tried = self.tried(client, txn_number, collection)
        if tried is Tried.BACKEND:
            # A retry takes the way of the first try, whose statements are recorded there.
            if not count_plain(pieces, start, collection):
                self.relays_distant_times(collection)
            return _count(pieces, start, size_bytes)
        if tried is not Tried.NOBODY or self._strategy.way(collection, size_bytes) is not InsertPath.NATIVE:
            return 0
        if self.rates is not None and self.rates.concern(exchange, collection.namespace.database):
            # The backend would not let them wait.
            return 0
        # The catalog refuses invalid times as the server does, and knows then that there are distant ones (Q12). It
        # stores an undefined meta value as null; a server stores it as it is, and cannot read the collection then.
        count = count_plain(pieces, start, collection)
        if count and txn_number is not None:
            self._statements.transaction(client, txn_number).is_native = True
        return count

    def _relays(
        self,
        exchange: Exchange,
        collection: VirtualCollection,
        size_bytes: int,
        pieces: Sequence[bytes],
        start: int,
        session: bytes,
        txn_number: int | None,
        *,
        ordered: bool,
    ) -> int:
        """As ``takes``, where inserts are coalesced.

        Ordered inserts of several documents are relayed, because only the server can stop at the first error, and
        those with empty timestamps as meta values, which are stored as they are only if they are ordered. Large ones
        gain nothing; and what the proxy's account may not do is up to the client's.
        """
        count = _count(pieces, start, size_bytes)
        client = (session, exchange.session.identity)
        tried = self.tried(client, txn_number, collection)
        if tried in (Tried.BACKEND, Tried.HERE):
            # A retry takes the way of the first try, whose statements are recorded there.
            return count if tried is Tried.BACKEND else 0
        namespace = collection.namespace
        if self._may_insert(namespace):
            if tried is Tried.PERHAPS or (self.rates is not None and self.rates.concern(exchange, namespace.database)):
                return 0
            is_alone = ordered and (count > 1 or has_empty_meta(pieces, start, collection))
            if not is_alone and not self.is_left_to_the_backend(size_bytes):
                return 0
        if count and txn_number is not None:
            self._statements.transaction(client, txn_number).is_native = True
        return count

    def is_left_to_the_backend(self, size_bytes: int) -> bool:
        """Whether an insert of this size is relayed where others are coalesced."""
        return size_bytes >= LARGE_BYTES or self._strategy.is_native

    def tried(self, client: SessionKey, txn_number: int | None, collection: VirtualCollection) -> Tried:
        """Who may have executed the statement with this number of the session."""
        if txn_number is None:
            return Tried.NOBODY
        if txn_number < 0:
            # The record refuses it.
            return Tried.HERE
        latest = self._statements.latest(client)
        is_latest = latest is not None and latest.number == txn_number
        if latest is not None and _is_decided(latest, txn_number):
            return Tried.BACKEND if is_latest and latest.is_native else Tried.HERE
        if latest is not None and is_latest and not latest.may_be_relayed:
            return Tried.PERHAPS
        is_needed = self._restart_dedup.is_needed(collection, first_of_session=_is_first(latest, txn_number))
        return Tried.PERHAPS if is_needed else Tried.NOBODY

    def relayed(self, identity: Identity, count: int, session: bytes, txn_number: int | None) -> None:
        """An insert of ``count`` documents is relayed that ``takes`` has not taken."""
        self.measurements += count
        if txn_number is not None:
            latest = self._statements.latest((session, identity))
            if not _is_decided(latest, txn_number):
                self._statements.transaction((session, identity), txn_number).is_native = True

    def begin(self, exchange: Exchange, collection: VirtualCollection, count: int, size_bytes: int) -> None:
        """Count and measure an insert of ``count`` documents and ``size_bytes`` that is about to be relayed."""
        self.measurements += count
        # Small ones are relayed if another process has tried them natively; they may be sent again.
        self.fewest_bytes = min(self.fewest_bytes, size_bytes)
        self.measure(exchange, collection, size_bytes)

    def measure(self, exchange: Exchange, collection: VirtualCollection, size_bytes: int) -> None:
        """Measure an insert of either way that has just begun, and whose meter is known."""
        if exchange.expects_reply and not self.coalesces:
            self._strategy.measure(exchange, collection, size_bytes)


def count_plain(pieces: Sequence[bytes], start: int, collection: VirtualCollection) -> int:
    """The number of documents that may be left to the server, 0 if some may not (``catalog.kernel.time_range``)."""
    options = collection.options
    meta_field = None if options.meta_field is None else options.meta_field.encode()
    return count_plain_times(pieces, start, options.time_field.encode(), meta_field)


def _is_decided(latest: Transaction | None, txn_number: int) -> bool:
    """Whether the way of this number is known, or there is a later one."""
    if latest is None or latest.number < txn_number:
        return False
    return latest.number > txn_number or not latest.is_untried


def _is_first(latest: Transaction | None, txn_number: int) -> bool:
    """Whether no earlier number of the session is known."""
    return latest is None or (latest.number == txn_number and not latest.follows_another)


def has_empty_meta(pieces: Sequence[bytes], start: int, collection: VirtualCollection) -> bool:
    """Whether a meta value may be an empty timestamp: servers store the current time instead in unordered inserts."""
    meta_field = collection.options.meta_field
    if meta_field is None:
        return False
    element = b"\x11" + meta_field.encode() + _EMPTY_TIMESTAMP
    return any(raw.find(element, start) >= 0 for raw in pieces)


def _count(pieces: Sequence[bytes], start: int, size_bytes: int) -> int:
    """The number of documents; 0 if they are not documents."""
    if len(pieces) > 1:
        return len(pieces)
    raw, count = pieces[0], 0
    end = start + size_bytes
    while start < end:
        length = length_at(raw, start) if start + 5 <= end else 0
        start += length
        count += 1
        if length < 5 or start > end:
            return 0
    return count
