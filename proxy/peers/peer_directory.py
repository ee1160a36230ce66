"""What the backend tells the membership of other processes."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from proxy.backend.current_op import Proxy
from proxy.peers.takeover import Backend


class PeerDirectory(Backend, Protocol):
    """What the backend knows of other processes (``proxy.backend.current_op``)."""

    def proxies(self) -> Awaitable[list[Proxy]]:
        """The other processes; raises ``CommandError``."""
        ...

    def executes(self, sessions: Sequence[bytes]) -> Awaitable[bool]:
        """Whether the backend executes a command of one of these sessions, raw; raises ``CommandError``."""
        ...

    def end_idle_transactions(self) -> Awaitable[int]:
        """End those with which other processes do not go on; returns how many, raises ``CommandError``."""
        ...
