"""The interface through which dispatch and this room stage inserts into virtual collections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from catalog.commit.statements import SessionKey
from proxy.request.exchange import Exchange
from proxy.request.ports import GoOn

if TYPE_CHECKING:
    from proxy.inserts.insert_templates import InsertTemplate


STAGE: Final = 0
"""The way of an insert that is ``submit``-ted."""
ASK: Final = -1
"""The way of an insert that others are asked about first (``ask``)."""


class PeerStatements(Protocol):
    """What other processes of the proxy know of retryable statements (``proxy.peers``)."""

    def concerns(self, client: SessionKey, number: int) -> bool:
        """Whether the session does not belong to this process, so that others must be asked about this number."""
        ...

    def ask(self, client: SessionKey, number: int, go_on: GoOn) -> None:
        """Ask the others; then the session belongs to this process, and its record has what they know."""
        ...


class InsertPort(Protocol):
    """Stages inserts into virtual collections."""

    @property
    def retryable_writes(self) -> bool:
        """Whether the backend supports retryable writes, so that the proxy does, too."""
        ...

    def way(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        pieces: Sequence[bytes],
        start: int,
        size_bytes: int,
        session: bytes,
        txn_number: int | None,
    ) -> int:
        """``STAGE``, ``ASK``, or the number of documents if the insert must be relayed, for the backend carries it out.

        ``pieces``, a list or tuple, are the documents or consist of them, and the first of them begins at ``start``;
        together they have ``size_bytes``.
        """
        ...

    def relay_begins(self, exchange: Exchange, template: InsertTemplate, count: int, size_bytes: int) -> None:
        """An insert of ``count`` documents, as ``way`` has said, is about to be relayed."""
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
