"""What takes inserts into virtual collections, as dispatch sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from catalog.namespaces import VirtualCollection
from catalog.write_batch import Writer
from proxy.inserts.insert_templates import Found, InsertTemplate
from proxy.request.command import Command
from proxy.request.session import Session


class ReplyingWriter(Writer, Protocol):
    """A writer of one measurement who can also be given the whole reply."""

    @property
    def is_bulk(self) -> bool:
        """Whether a large insert brought it."""
        ...

    def expect(self) -> None:
        """It will be settled."""
        ...

    def reply(self, document: bytes | None) -> None:
        """The raw reply document; instead of ``settle``."""
        ...


class Ingest(Protocol):
    """Takes inserts into virtual collections."""

    def submit(
        self,
        session: Session,
        command: Command,
        collection: VirtualCollection,
        reply: Callable[[bytes | None], None],
    ) -> bool:
        """Stage the documents now; ``reply`` is called once with the raw reply document, ``None`` for no reply.

        False: this is not for the catalog (nothing was staged); the command is relayed and ``reply`` never called.
        May raise ``CommandError`` before anything was staged.
        """
        ...

    def repeated(self, raw: bytes) -> Found | None:
        """What a raw OP_MSG inserts, when its body was seen before and it is sound."""
        ...

    def submit_known(
        self,
        session: Session,
        repeated: InsertTemplate,
        documents: Sequence[bytes],
        txn_number: int | None,
        reply: Callable[[bytes | None], None],
    ) -> None:
        """As ``submit`` for such an insert; its collection must be what it was then. Raises ``CommandError``."""
        ...

    def submit_one(
        self,
        session: Session,
        repeated: InsertTemplate,
        document: bytes,
        txn_number: int | None,
        writer: ReplyingWriter,
    ) -> None:
        """As ``submit_known`` for one document; raises nothing.

        ``writer`` is settled once and then calls ``settled_one``, or it is given its reply once.
        """
        ...

    def settled_one(self, size_bytes: int) -> None:
        """A document of ``submit_one`` of this size is not under way any more."""
        ...
