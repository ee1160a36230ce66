"""What the network side calls and others provide; the server wires them together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from catalog.namespaces import Namespace, VirtualCollection
from proxy.request.command import Command
from proxy.request.exchange import Reader
from proxy.request.router import Unresolved
from proxy.request.session import Session
from rewrite.plan import Effect


class Translate(Protocol):
    """Answers commands on virtual collections that are no inserts, and some that concern a whole database."""

    def __call__(self, session: Session, command: Command, collection: VirtualCollection | None) -> Awaitable[bytes]:
        """The raw reply document; raises ``CommandError``. ``collection`` is ``None`` for database-wide commands."""
        ...


class Namespaces(Protocol):
    """Which namespaces are virtual."""

    def lookup(self, namespace: Namespace) -> VirtualCollection | Unresolved | None:
        """From memory; ``UNRESOLVED`` when the backend must be asked."""
        ...

    async def resolve(self, namespace: Namespace) -> VirtualCollection | None:
        """As ``lookup``, asking the backend where needed; raises ``CommandError``."""
        ...


class Gate(Protocol):
    """What clients may do, for what the proxy's own account would do for them."""

    def is_stranger(self, session: Session) -> bool:
        """Whether nobody has logged in over this connection where somebody has to."""
        ...

    def known(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool | None:
        """From memory whether all these actions are allowed; ``None`` when the backend must be asked."""
        ...

    async def allows(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool:
        """As ``known``, asking the backend where needed; raises ``BackendUnavailable``."""
        ...


class Readers(Protocol):
    """Who reads which database at the moment (``proxy.readers.register``)."""

    def of_relayed(self, command: Command) -> Reader | None:
        """What this command reads when it is relayed; ``None`` if nothing that anybody has to wait for."""
        ...

    def of_rewritten(self, namespace: Namespace) -> Reader:
        """What a command on this collection reads when it is rewritten."""
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


STEPS_AT_ONCE: Final = 256
"""Steps of deletes and their like that are under way at the backend; one may go through a whole collection.

As many connections are kept for them as places are given out, so that nobody waits for a connection out of turn.
"""

Effects = Callable[[Effect], None]
"""Carries out what a command changed: buckets to clear, namespaces to forget."""
