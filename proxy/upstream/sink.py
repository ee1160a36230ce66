"""Who receives a reply of the backend."""

from __future__ import annotations

from typing import Protocol

from catalog.errors import BackendUnavailable


class Sink(Protocol):
    """Receives a streamed reply."""

    def whole(self, reply: bytes) -> None:
        """The reply in one piece, instead of ``write`` and ``done``."""
        ...

    def write(self, data: bytes) -> None:
        """The next bytes of the reply."""
        ...

    def done(self) -> None:
        """The reply is complete, including further messages after ``moreToCome``."""
        ...

    def deposed(self, reply: bytes) -> None:
        """The reply in one piece, instead of ``whole``; it says that the server is no longer the primary."""
        ...

    def failed(self, error: BackendUnavailable, partly_sent: bool) -> None:
        """The backend's connection ended before that."""
        ...
