"""What one client is owed between its commands."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

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
    empty without authentication). ``has_client_metadata`` tells that a hello brought them, which may happen once;
    ``compressors`` are the names agreed on. ``rights`` are what the backend said that this connection may do.
    ``on_login`` is called when somebody has logged in.
    """

    connection_id: int
    peer: str
    upstream: Upstream
    identity: str = ""
    has_client_metadata: bool = False
    compressors: tuple[str, ...] = ()
    rights: KnownRights | None = None
    on_login: Callable[[], None] | None = None
