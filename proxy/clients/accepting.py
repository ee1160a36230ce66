"""Accepts connections, and admits each before anything is read from it, which asyncio's server cannot.

A connection is accepted and admitted; then its TLS handshake, if there is one, runs in a task, for a limited time.
Several processes may accept from the same sockets (``proxy.clients.connection_board``).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from proxy.clients.binding import bound
from proxy.clients.connection_board import ConnectionBoard
from proxy.clients.handshakes import LastWords, last_words
from proxy.clients.tls import HANDSHAKE_SECONDS, Newest
from proxy.observe.limited_log import noticed
from proxy.observe.tasks import Spawn

RETRY_SECONDS: Final = 0.1
"""Pause if no connection can be accepted, for example without free file descriptors."""
GIVE_WAY_SECONDS: Final = 0.002
"""How long a process leaves a new connection to others that have fewer; then it accepts it nevertheless."""
ACCEPTED_AT_ONCE: Final = 16
"""Connections accepted in one turn of the event loop by a process that does not share its sockets."""


class Door(Protocol):
    """Decides who may connect, and knows the handshakes in progress (``proxy.clients.admission``)."""

    def refuses(self, address: str, file_number: int) -> bool:
        """Whether one more connection from this address, with this file number, is closed at once."""
        ...

    def begin(self, address: str, handshake: asyncio.Task[None]) -> None:
        """A handshake begins; another one may be cancelled for it."""
        ...

    def end(self, address: str, handshake: asyncio.Task[None]) -> None:
        """The handshake has ended; does nothing if it no longer counts."""
        ...


MakeProtocol = Callable[[Callable[[], None]], asyncio.Protocol]
"""Makes the protocol of one connection, which calls the given function when it is admitted, to be counted once."""


class Listener:
    """The listening sockets, from ``__init__`` to ``close``."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        tls: Newest | None,
        protocol: MakeProtocol,
        door: Door,
        spawn: Spawn,
        board: ConnectionBoard | None = None,
        handshake_seconds: float = HANDSHAKE_SECONDS,
    ) -> None:
        """``tls``: called for each connection, whose handshake may take ``handshake_seconds``; ``None`` = no TLS.

        ``board``: how many connections the other processes have that share the sockets.
        """
        self.sockets = tuple(sockets)
        self._tls = tls
        self._protocol = protocol
        self._door = door
        self._handshake_seconds = handshake_seconds
        self._spawn = spawn
        self._board = board
        self._loop = asyncio.get_running_loop()
        for each in self.sockets:
            self._watch(each)

    @staticmethod
    async def listen(host: str, port: int, backlog: int) -> list[socket.socket]:
        """Sockets that listen on every address of the host; raises ``OSError``."""
        sockets = await bound(host, port)
        try:
            for each in sockets:
                each.setblocking(False)
                each.listen(backlog)
        except OSError:
            for each in sockets:
                each.close()
            raise
        return sockets

    def close(self, *, takes_queue: bool = False) -> None:
        """Accept no more; with ``takes_queue``, after the connections that wait to be accepted.

        The kernel resets them when the last process that has the socket closes it.
        """
        for each in self.sockets:
            if each.fileno() >= 0:
                self._loop.remove_reader(each.fileno())
                while takes_queue and self._take(each):
                    pass
                each.close()

    def _watch(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening.fileno(), self._readable, listening)

    def _readable(self, listening: socket.socket) -> None:
        if self._board is None:
            for _ in range(ACCEPTED_AT_ONCE):
                if not self._take(listening):
                    return
        elif self._board.is_busiest():
            self._pause(listening, GIVE_WAY_SECONDS)
            self._loop.call_later(GIVE_WAY_SECONDS, self._take, listening)
        else:
            # One at a time, so that the others get theirs.
            self._take(listening)

    def _pause(self, listening: socket.socket, seconds: float) -> None:
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(seconds, self._watch, listening)

    def _take(self, listening: socket.socket) -> bool:
        """Accept a connection if one waits; returns whether another one may wait."""
        if listening.fileno() < 0:
            return False
        try:
            accepted, peer = listening.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionError:
            return True
        except OSError as error:
            noticed.warning("cannot accept a connection", reason=error.strerror)
            # Otherwise it would be tried again at once.
            self._pause(listening, RETRY_SECONDS)
            return False
        address = str(peer[0])
        if self._door.refuses(address, accepted.fileno()):
            accepted.close()
        else:
            self._door.begin(address, self._spawn(self._greet(accepted, address)))
        return True

    async def _greet(self, accepted: socket.socket, address: str) -> None:
        this = asyncio.current_task()
        assert this is not None
        protocol = partial(self._protocol, partial(self._door.end, address, this))
        try:
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                await self._loop.connect_accepted_socket(protocol, accepted)
            else:
                await self._encrypt(accepted, protocol, self._tls())
        except (OSError, TimeoutError):
            # The handshake has failed, or the client has disconnected. ``ssl.SSLError`` is an ``OSError``.
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise
        finally:
            self._door.end(address, this)

    async def _encrypt(
        self, accepted: socket.socket, protocol: Callable[[], asyncio.Protocol], context: ssl.SSLContext
    ) -> None:
        said = LastWords(accepted)
        last_words.set(said)
        try:
            await self._loop.connect_accepted_socket(
                protocol, accepted, ssl=context, ssl_handshake_timeout=self._handshake_seconds
            )
        except OSError:
            await said.heard()
            raise
        finally:
            said.close()
