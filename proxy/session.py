"""What one client is owed between its commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.authorisation import KnownRights
    from proxy.upstream import Upstream

_request_ids = count(1)


def next_request_id() -> int:
    """A request id for a message of ours, positive, unique for a long while in this process."""
    return next(_request_ids) & 0x7FFF_FFFF


@dataclass(slots=True, eq=False)
class Session:
    """The state of one client connection.

    ``identity`` names the users that this connection authenticated as (``user@db``, sorted, comma-separated;
    empty without authentication). ``hello`` is the body of the client's first hello (with its ``client``
    metadata), ``b""`` before it; ``compressors`` are the names agreed on. ``rights`` are what the backend said that
    this connection may do.
    """

    connection_id: int
    peer: str
    upstream: Upstream
    identity: str = ""
    hello: bytes = b""
    has_client_metadata: bool = False
    compressors: tuple[str, ...] = ()
    users: set[str] = field(default_factory=set)
    rights: KnownRights | None = None

    def authenticated(self, user: str, database: str) -> None:
        """``user`` of ``database`` is logged in now; one user for each database, as a server has it."""
        self.users = {known for known in self.users if not known.endswith(f"@{database}")} | {f"{user}@{database}"}
        self.identity = ",".join(sorted(self.users))

    def logged_out(self, database: str) -> None:
        """The user of ``database`` is logged out."""
        self.users = {known for known in self.users if not known.endswith(f"@{database}")}
        self.identity = ",".join(sorted(self.users))
