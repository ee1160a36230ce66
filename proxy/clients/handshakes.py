"""TLS handshakes that fail: the log has the reason, and the client is sent the alert that says it.

asyncio closes such connections silently, and at once, before it has sent the alert that OpenSSL has written. So the
alert goes out by a duplicate of the socket, which stays open until the client has had time to read it: closing a socket
while the client still sends would reset the connection, and the alert would be lost.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextvars import ContextVar
from typing import Any, Final

from proxy.observe.limited_log import noticed

LINGER_SECONDS: Final = 1.0
"""How long a client may take to close its side after it was sent the alert."""
_MOST_UNREAD_BYTES: Final = 65_536
"""Of what the client sends nevertheless."""


class LastWords:
    """Sends the alert of one connection, if its handshake fails, and then lets the client hear it."""

    __slots__ = ("_accepted", "_kept")

    def __init__(self, accepted: socket.socket) -> None:
        self._accepted = accepted
        self._kept: socket.socket | None = None

    def say(self, alert: bytes) -> None:
        """Send the alert, after which nothing follows; it is lost if that is not possible at once."""
        try:
            self._kept = self._accepted.dup()
            self._kept.setblocking(False)
            self._kept.send(alert)
            self._kept.shutdown(socket.SHUT_WR)
        except OSError:
            # The client has left, or there is no free file descriptor.
            self.close()

    async def heard(self) -> None:
        """Returns when the client has closed the connection, or should have; at once if there was no alert."""
        if self._kept is None:
            return
        loop = asyncio.get_running_loop()
        unread = 0
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                while unread < _MOST_UNREAD_BYTES and (rest := await loop.sock_recv(self._kept, 4_096)):
                    unread += len(rest)
        except (OSError, TimeoutError):
            pass

    def close(self) -> None:
        """Close the duplicate, if there is one."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None


last_words: Final[ContextVar[LastWords | None]] = ContextVar("last_words", default=None)
"""Of the connection whose handshake begins in this task."""


class WatchedContext(ssl.SSLContext):
    """For the server's side of TLS connections: handshakes that fail are logged, and clients are told why."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **options: Any) -> ssl.SSLObject:
        """As ``ssl.SSLContext.wrap_bio``."""
        made = super().wrap_bio(incoming, outgoing, *args, **options)
        assert isinstance(made, _WatchedHandshake)
        made.outgoing, made.last_words = outgoing, last_words.get()
        return made


class _WatchedHandshake(ssl.SSLObject):
    """The server's side of one TLS connection."""

    outgoing: ssl.MemoryBIO
    last_words: LastWords | None

    def do_handshake(self) -> None:
        """As ``ssl.SSLObject.do_handshake``; the peer's address is not known here."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            reason = getattr(error, "reason", None) or str(error)
            noticed.info("TLS handshake with a client failed", reason=reason)
            if self.last_words is not None and (alert := self.outgoing.read()):
                self.last_words.say(alert)
            raise


WatchedContext.sslobject_class = _WatchedHandshake
