"""The TLS context that the options of a connection string ask for."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, cast

from pymongo import AsyncMongoClient

TLS_OPTIONS = ("tls", "ssl")
"""How the names of these options begin."""


def tls_of(options: Mapping[str, Any]) -> ssl.SSLContext | None:
    """The context, as the driver makes it from its own options; ``None`` without TLS.

    Raises ``PyMongoError`` or ``OSError`` for files that cannot be loaded.
    """
    chosen = {name: value for name, value in options.items() if name.lower().startswith(TLS_OPTIONS)}
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient("localhost", connect=False, **chosen)
    return context_of(client)


def context_of(client: AsyncMongoClient[Any]) -> ssl.SSLContext | None:
    """The context of a client; the driver has no public way to it."""
    return cast("ssl.SSLContext | None", client.options.pool_options._ssl_context)  # noqa: SLF001
