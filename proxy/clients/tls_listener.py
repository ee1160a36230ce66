"""Listens for TLS clients, and admits each connection before its handshake, which the event loop's server cannot.

A connection is accepted and admitted; then its handshake runs in a task, for at most ``HANDSHAKE_SECONDS``.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from proxy.clients.admission import Admission
from proxy.clients.binding import bound
from proxy.clients.tls import HANDSHAKE_SECONDS

log = structlog.get_logger()

RETRY_SECONDS: Final = 0.1
"""Pause if no connection can be accepted, for example without free file descriptors."""

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class TlsListener:
    """The listening sockets and the tasks that accept connections."""

    def __init__(
        self,
        sockets: list[socket.socket],
        context: ssl.SSLContext,
        protocol: Callable[[], asyncio.Protocol],
        admission: Admission,
        spawn: Spawn,
    ) -> None:
        self.sockets = sockets
        self._context = context
        self._protocol = protocol
        self._admission = admission
        self._spawn = spawn
        self._accepting = [spawn(self._accept(each)) for each in sockets]

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

    def close(self) -> None:
        """Accept no more."""
        for task in self._accepting:
            task.cancel()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    accepted, peer = await loop.sock_accept(listening)
                except OSError as error:
                    log.warning("cannot accept a connection", reason=error.strerror)
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                address = str(peer[0])
                if self._admission.refuses(address):
                    accepted.close()
                else:
                    self._admission.begin(address, self._spawn(self._greet(accepted, address)))
        finally:
            listening.close()

    async def _greet(self, accepted: socket.socket, address: str) -> None:
        this = asyncio.current_task()
        assert this is not None
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol, accepted, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        except (OSError, TimeoutError):
            # The handshake has failed, or the client has disconnected. ``ssl.SSLError`` is an ``OSError``.
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise
        finally:
            self._admission.end(address, this)
