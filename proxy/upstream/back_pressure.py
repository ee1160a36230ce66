"""A connection that detects when its peer does not keep up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class BackPressure(asyncio.Protocol):
    """Records whether a transport's write buffer is full, for one caller that waits."""

    def __init__(self) -> None:
        self.takes_no_more = False
        """Whether the peer does not keep up."""
        self._on_writable: Callable[[], None] | None = None

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
