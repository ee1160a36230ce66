"""Opens connections to servers: over TCP, with TLS, or over a Unix socket."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar

ConnectionT = TypeVar("ConnectionT", bound=asyncio.Protocol)


async def connect(
    protocol: Callable[[], ConnectionT], host: str, port: int, tls: ssl.SSLContext | None
) -> tuple[asyncio.BaseTransport, ConnectionT]:
    """A connection; a host that ends with ``.sock`` is a socket's path, as in connection strings. Raises ``OSError``.

    https://www.mongodb.com/docs/manual/reference/connection-string/
    """
    loop = asyncio.get_running_loop()
    if host.endswith(".sock"):
        return await loop.create_unix_connection(protocol, host)
    return await loop.create_connection(protocol, host, port, ssl=tls, server_hostname=host if tls else None)
