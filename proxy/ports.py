"""What the network side calls and others provide; the server wires them together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from catalog.namespaces import Namespace, VirtualCollection
from catalog.write_batch import Writer
from proxy.command import Command
from proxy.namespace_registry import Lookup
from proxy.repeated_inserts import Found, RepeatedInsert
from proxy.session import Session
from rewrite.plan import Effect


class ReplyingWriter(Writer, Protocol):
    """A writer of one measurement who can also be given the whole reply."""

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

    def submit_repeated(
        self,
        session: Session,
        repeated: RepeatedInsert,
        documents: Sequence[bytes],
        txn_number: int | None,
        reply: Callable[[bytes | None], None],
    ) -> None:
        """As ``submit`` for such an insert; its collection must be what it was then. Raises ``CommandError``."""
        ...

    def submit_one(
        self,
        session: Session,
        repeated: RepeatedInsert,
        document: bytes,
        txn_number: int | None,
        writer: ReplyingWriter,
    ) -> None:
        """As ``submit_repeated`` for one document; raises nothing.

        ``writer`` is settled once and then calls ``settled_one``, or it is given its reply once.
        """
        ...

    def settled_one(self, size_bytes: int) -> None:
        """A document of ``submit_one`` of this size is not under way any more."""
        ...


class Translate(Protocol):
    """Answers commands on virtual collections that are no inserts, and some that concern a whole database."""

    def __call__(self, session: Session, command: Command, collection: VirtualCollection | None) -> Awaitable[bytes]:
        """The raw reply document; raises ``CommandError``. ``collection`` is ``None`` for database-wide commands."""
        ...


class Namespaces(Protocol):
    """Which namespaces are virtual."""

    def lookup(self, namespace: Namespace) -> VirtualCollection | Lookup | None:
        """From memory; ``Lookup.UNKNOWN`` when the backend must be asked."""
        ...

    async def resolve(self, namespace: Namespace) -> VirtualCollection | None:
        """As ``lookup``, asking the backend where needed; raises ``CommandError``."""
        ...


class Gate(Protocol):
    """What clients may do, for what the proxy's own account would do for them."""

    def known(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool | None:
        """From memory whether all these actions are allowed; ``None`` when the backend must be asked."""
        ...

    async def allows(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool:
        """As ``known``, asking the backend where needed; raises ``BackendUnavailable``."""
        ...


class BackendView(Protocol):
    """What the network side knows of the backend."""

    @property
    def hello(self) -> Mapping[str, Any]:
        """The backend's latest answer to ``hello``."""
        ...

    async def primary_address(self) -> tuple[str, int]:
        """Where the clients' own connections go; raises ``BackendUnavailable``."""
        ...


Effects = Callable[[Effect], None]
"""Carries out what a command changed: buckets to clear, namespaces to forget."""
