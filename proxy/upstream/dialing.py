"""How upstream connections find the backend's primary."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

from catalog.errors import BackendUnavailable
from proxy.upstream.connecting import connect
from proxy.upstream.connection import UpstreamConnection
from proxy.upstream.file_limit import NoFilesLeft, file_limit, is_out_of_files, is_reserved

STEP_DOWN_SECONDS: Final = 1.0
"""Time for which no client is sent to a server that is stepping down."""


def upstream_name(host: str, port: int | None) -> str:
    """A server's address as text."""
    port = port or 27017
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_upstream_name(name: str) -> tuple[str, int]:
    """The reverse of ``upstream_name``."""
    host, _, port = name.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Dialer:
    """How to connect to the backend: current address, TLS, and timeout."""

    def __init__(
        self,
        address: Callable[[], Awaitable[tuple[str, int]]],
        tls: ssl.SSLContext | None,
        timeout_seconds: float,
        *,
        patience_seconds: float = 0.0,
        on_not_primary: Callable[[str], None] | None = None,
    ) -> None:
        """``patience_seconds``: maximum time without a primary; see ``UpstreamConnection``."""
        self._address = address
        self._tls = tls
        self._timeout_seconds = timeout_seconds
        self.patience_seconds = patience_seconds
        self._on_not_primary = on_not_primary
        self._avoided = ("", 0.0)

    def avoid(self, address: str) -> None:
        """Record that this server is stepping down; it may still report itself as primary for a moment."""
        self._avoided = (address, asyncio.get_running_loop().time() + STEP_DOWN_SECONDS)

    async def dial(self, on_lost: Callable[[], None]) -> UpstreamConnection:
        """Open a connection, without sending hello; raises ``BackendUnavailable``.

        The last free files are not for connections of clients: ``NoFilesLeft``.
        """
        host, port = await self._address()
        name = upstream_name(host, port)
        loop = asyncio.get_running_loop()
        avoided, until_seconds = self._avoided
        if name == avoided and loop.time() < until_seconds:
            raise BackendUnavailable(f"{name} is stepping down", code=10107)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                transport, connection = await connect(
                    lambda: UpstreamConnection(name, on_lost, self._on_not_primary), host, port, self._tls
                )
        except TimeoutError:
            raise BackendUnavailable(
                f"the backend {name} did not accept a connection within {self._timeout_seconds:g} s"
            ) from None
        except OSError as error:
            if is_out_of_files(error):
                raise NoFilesLeft(f"cannot connect to the backend {name}: {error}") from None
            raise BackendUnavailable(f"cannot connect to the backend {name}: {error}") from None
        opened = transport.get_extra_info("socket")
        if opened is not None and is_reserved(opened.fileno(), file_limit()):
            connection.close()
            raise NoFilesLeft(f"cannot connect to the backend {name}: the proxy has too many open files")
        return connection
