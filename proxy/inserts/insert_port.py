"""The interface through which dispatch and this room stage inserts into virtual collections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from catalog.commit.tenure import SessionKey
from catalog.namespaces import VirtualCollection
from proxy.request.exchange import Exchange
from proxy.request.ports import GoOn

if TYPE_CHECKING:
    from proxy.inserts.insert_templates import InsertTemplate


class PeerStatements(Protocol):
    """What other processes of the proxy know of retryable statements (``proxy.peers``)."""

    def concerns(self, client: SessionKey, number: int) -> bool:
        """Whether the session does not belong to this process, so that others must be asked about this number."""
        ...

    def ask(self, client: SessionKey, number: int, go_on: GoOn, sent_seconds: float = -math.inf) -> None:
        """Ask the others; then the session belongs to this process, and its record has what they know.

        ``sent_seconds``: the client has sent the message at this time, or later (``Session.answered_seconds``).
        """
        ...


class InsertPort(Protocol):
    """Stages inserts into virtual collections."""

    @property
    def retryable_writes(self) -> bool:
        """Whether the backend supports retryable writes, so that the proxy does, too."""
        ...

    def documents_to_relay(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        pieces: Sequence[bytes],
        start: int,
        size_bytes: int,
        session: bytes,
        txn_number: int | None,
    ) -> int:
        """The number of documents if the backend carries the insert out, which must be relayed; 0: ``submit`` it.

        ``pieces``, a list or tuple, are the documents or consist of them, and the first of them begins at ``start``;
        together they have ``size_bytes``.
        """
        ...

    def relay_begins(self, exchange: Exchange, template: InsertTemplate, count: int, size_bytes: int) -> None:
        """An insert of ``count`` documents (``documents_to_relay``) is about to be relayed."""
        ...

    def relay_unseen(self, collection: VirtualCollection, documents: Sequence[bytes]) -> None:
        """An insert that is not for the catalog is about to be relayed; reads must know of distant times (Q12)."""
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

        Other processes whom the insert concerns are asked before; it may then have to be relayed after all.
        The collection must still be that of ``template``, and the client must have the rights for the insert.
        ``session``, the raw ``lsid``, and ``txn_number`` are those of a retryable write.
        """
        ...
