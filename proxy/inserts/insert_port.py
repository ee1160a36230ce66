"""The interface through which dispatch and this room stage inserts into virtual collections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from proxy.request.exchange import Exchange

if TYPE_CHECKING:
    from proxy.inserts.insert_templates import InsertTemplate


class Ingest(Protocol):
    """Stages inserts into virtual collections."""

    @property
    def retryable_writes(self) -> bool:
        """Whether the backend supports retryable writes, so that the proxy does, too."""
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
