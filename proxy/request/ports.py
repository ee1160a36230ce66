"""Interfaces that the network side calls and other rooms implement; the server connects them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from catalog.errors import CommandError
from catalog.namespaces import Namespace, VirtualCollection
from proxy.request.command import Command
from proxy.request.exchange import Reader
from proxy.request.router import Unresolved
from proxy.request.session import Session
from proxy.request.times import Times
from rewrite.plan import Effect


class Translator(Protocol):
    """Executes commands on virtual collections other than inserts, and some database-wide commands."""

    def __call__(
        self, session: Session, command: Command, collection: VirtualCollection | None, times: Times
    ) -> Awaitable[bytes]:
        """The raw reply document; raises ``CommandError``. ``collection`` is ``None`` for database-wide commands.

        ``times`` records where the time goes.
        """
        ...


class Namespaces(Protocol):
    """The virtual namespaces."""

    def lookup(self, namespace: Namespace) -> VirtualCollection | Unresolved | None:
        """From the cache; ``None`` if it is not virtual, ``UNRESOLVED`` if the backend must be asked."""
        ...

    async def resolve(self, namespace: Namespace) -> VirtualCollection | None:
        """As ``lookup``, asking the backend if needed; raises ``CommandError``."""
        ...


class ReadGate(Protocol):
    """The clients' privileges (``proxy.request.authorisation``); the type of a session is that of the gate."""

    async def allows(self, session: Any, actions: tuple[str, ...], namespace: Namespace) -> bool:
        """Whether all these actions on that collection are allowed; raises ``BackendUnavailable``."""
        ...

    async def reads_buckets(self, session: Any, namespace: Namespace) -> bool:
        """Whether this client may read the buckets of that collection itself; raises ``BackendUnavailable``."""
        ...


class Gate(Protocol):
    """The privileges of clients, for commands that the proxy's own account executes for them."""

    def must_log_in(self, session: Session) -> bool:
        """Whether the client has not logged in although it must."""
        ...

    def known(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool | None:
        """Whether all these actions are allowed, from the cache; ``None`` if the backend must be asked."""
        ...

    async def allows(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool:
        """As ``known``, asking the backend if needed; raises ``BackendUnavailable``."""
        ...


class Readers(Protocol):
    """The active readers by database (``proxy.readers.register``)."""

    def of_relayed(self, command: Command) -> Reader | None:
        """What this command reads if it is relayed; ``None`` if joins need not wait for it."""
        ...

    def of_rewritten(self, namespace: Namespace) -> Reader | None:
        """What a rewritten command on this collection reads; ``None`` as above."""
        ...


class BackendView(Protocol):
    """The properties of the backend that the network side needs."""

    @property
    def hello(self) -> Mapping[str, Any]:
        """The backend's latest reply to ``hello``."""
        ...

    async def primary_address(self) -> tuple[str, int]:
        """The server to which the clients' own connections go; raises ``BackendUnavailable``."""
        ...


STEPS_AT_ONCE: Final = 256
"""Maximum number of concurrent steps of deletes and the like; one may read a whole collection.

There are as many connections as places, so that no step waits for a connection out of turn.
"""

Effects = Callable[[Effect], None]
"""Applies an effect of a command: buckets to clear, namespaces to forget."""

Announce = Callable[[Sequence[Effect]], Awaitable[None]]
"""Tells the other processes which definitions have changed; waits, for a short time, until they know."""

RunCommand = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]]
"""Runs one command on a database, and returns the reply; raises ``CommandError``."""

GoOn = Callable[[CommandError | None], None]
"""Called once when other processes were asked, with the error that the client gets, if any."""
