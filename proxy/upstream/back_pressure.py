"""A connection that detects when its peer does not keep up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

AHEAD_COMMANDS: Final = 64
AHEAD_BYTES: Final = 1024 * 1024
"""After this many commands or bytes without a reply, the next command asks for one (``BackPressure.is_ahead``)."""


class BackPressure(asyncio.Protocol):
    """Records whether a transport's write buffer is full, for one caller that waits, and how much needed no reply."""

    def __init__(self) -> None:
        self.takes_no_more = False
        """Whether the peer does not keep up."""
        self._on_writable: Callable[[], None] | None = None
        self._ahead_commands = 0
        self._ahead_bytes = 0

    @property
    def is_ahead(self) -> bool:
        """Whether so much was sent without a reply that the next command must ask for one.

        The sockets of both sides hold megabytes of commands, with which a server is busy for many seconds, even if the
        client has left meanwhile.
        """
        return self._ahead_commands >= AHEAD_COMMANDS or self._ahead_bytes >= AHEAD_BYTES

    def sent_ahead(self, size_bytes: int) -> None:
        """A command was sent that has no reply."""
        self._ahead_commands += 1
        self._ahead_bytes += size_bytes

    def asked_for_reply(self) -> None:
        """A command was sent whose reply will show that the peer has read everything before it."""
        self._ahead_commands = self._ahead_bytes = 0

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Call this once when the peer keeps up again, or when the connection ends. One caller can wait at a time."""
        self._on_writable = callback

    def pause_writing(self) -> None:
        """Called by the event loop."""
        self.takes_no_more = True

    def resume_writing(self) -> None:
        """Called by the event loop."""
        self.takes_no_more = False
        callback, self._on_writable = self._on_writable, None
        if callback is not None:
            callback()
