"""The interface through which dispatch and this room stage inserts into virtual collections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from catalog.commit.statements import ClientSession
from catalog.errors import CommandError
from catalog.namespaces import VirtualCollection
from proxy.request.exchange import Exchange

if TYPE_CHECKING:
    from proxy.inserts.insert_templates import InsertTemplate


class Native(Protocol):
    """Inserts that the backend itself carries out (``proxy.inserts.native_inserts``, which explains the methods)."""

    @property
    def fewest_bytes(self) -> int:
        """The size of documents below which ``takes`` is always 0."""
        ...

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
        """The number of documents if the insert must be relayed; 0 if it is to be staged."""
        ...

    def begin(self, exchange: Exchange, collection: VirtualCollection, count: int, size_bytes: int) -> None:
        """An insert that it takes is about to be relayed."""
        ...


GoOn: TypeAlias = Callable[[CommandError | None], None]
"""Called once when other processes were asked, with the error that the client gets, if any."""


class PeerStatements(Protocol):
    """What other processes of the proxy know of retryable statements (``proxy.peers``)."""

    def concerns(self, client: ClientSession, number: int) -> bool:
        """Whether the session does not belong to this process, so that others must be asked about this number."""
        ...

    def ask(self, client: ClientSession, number: int, go_on: GoOn) -> None:
        """Ask the others; then the session belongs to this process, and its record has what they know."""
        ...


class InsertPort(Protocol):
    """Stages inserts into virtual collections."""

    @property
    def elsewhere(self) -> PeerStatements | None:
        """Set while there are other processes, or were lately."""
        ...

    def ask(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        documents: Sequence[bytes],
        session: bytes,
        txn_number: int,
    ) -> None:
        """Ask other processes, whom the insert concerns; then relay it, or ``submit`` it. Raises nothing."""
        ...

    @property
    def retryable_writes(self) -> bool:
        """Whether the backend supports retryable writes, so that the proxy does, too."""
        ...

    @property
    def native(self) -> Native:
        """What decides which inserts the backend itself carries out; these must be relayed."""
        ...

    def submit(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        documents: Sequence[bytes],
        session: bytes,
        txn_number: int | None,
    ) -> None:
        """Stage the documents, now or in their turn; the exchange gets its reply once. Raises nothing.

        The collection must still be that of ``template``, and the client must have the rights for the insert.
        ``session``, the raw ``lsid``, and ``txn_number`` are those of a retryable write.
        """
        ...
