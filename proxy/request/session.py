"""The state of a client between its commands: its identity, its rights, its connections to the backend."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from catalog.identity import NOBODY, Identity

# Imported before the class is made, and not for the types alone: compiled, it refers to these classes.
from proxy.request.authorisation import KnownRights
from proxy.request.open_transactions import OpenTransactions
from proxy.upstream.connection import Upstream, UpstreamConnection
from proxy.wire.limits import MAX_MESSAGE_SIZE_BYTES


@dataclass(slots=True, eq=False)
class Session:
    """The state of one client connection.

    ``identity``: the users that this connection authenticated as. ``has_client_metadata`` tells that a hello brought
    them, which may happen once;
    ``compressors`` are the negotiated names. ``rights`` are the privileges of this connection at the backend.
    ``message_limit_bytes`` limits the decompressed size of a message; ``on_login`` is called after a login,
    ``on_identity`` after each change of ``identity`` (it raises ``CommandError`` to refuse it),
    ``on_disconnect`` when the client has disconnected.
    ``members`` are the sessions over connections to other members of the replica set by their names, ``member`` is the
    address of that member in such a session, ``home`` the session that it belongs to. ``came_at_seconds``: when it was
    let in. ``is_for_admin``: it came through the listener for admin commands. ``open_transactions`` are those of all
    clients, because drivers may send the commands of one over several connections. ``answered_seconds``
    (``time.perf_counter``): when the latest command was answered, so that the client has sent the next one later;
    -inf if there was none, or the client does not wait for answers.
    """

    connection_id: int
    peer: str
    upstream: Upstream
    identity: Identity = NOBODY
    has_client_metadata: bool = False
    compressors: tuple[str, ...] = ()
    rights: KnownRights | None = None
    on_login: Callable[[], None] | None = None
    on_disconnect: Callable[[], None] | None = None
    on_identity: Callable[[], None] | None = None
    message_limit_bytes: int = MAX_MESSAGE_SIZE_BYTES
    members: dict[str, Session] = field(default_factory=dict)
    member: tuple[str, int | None] | None = None
    home: Session | None = None
    came_at_seconds: float = -1.0
    is_for_admin: bool = False
    open_transactions: OpenTransactions = field(default_factory=OpenTransactions)
    answered_seconds: float = -math.inf

    @property
    def owner(self) -> Hashable:
        """The client for fair turns: its users and address, however many connections it opens."""
        return self.identity, self.peer

    def connections(self) -> list[UpstreamConnection]:
        """The open connections to the backend."""
        sessions = (self, *self.members.values())
        return [connection for each in sessions if (connection := each.upstream.ready) is not None]

    def close(self) -> None:
        """The client has disconnected; close its connections to the backend."""
        for session in (self, *self.members.values()):
            session.upstream.close()
        on_disconnect, self.on_disconnect = self.on_disconnect, None
        if on_disconnect is not None:
            on_disconnect()
