"""A connection that logs in and then sends exactly the commands it is told to, session fields and all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote_plus

import bson

from proxy.backend.service_auth import authenticator
from proxy.backend.service_connection import ServiceConnection
from tests.support.access import PASSWORD
from tests.support.ports import LOOPBACK


class LoggedIn:
    """Commands of one user on one database; replies come as they are, errors too."""

    def __init__(self, connection: ServiceConnection, database: str) -> None:
        self._connection = connection
        self._database = database

    async def run(self, command: Mapping[str, Any], database: str = "") -> dict[str, Any]:
        """One command and its reply."""
        body = bson.encode({**command, "$db": database or self._database})
        return dict(bson.decode(await self._connection.request(body)))


@asynccontextmanager
async def logged_in(
    port: int, user: str, source: str, database: str, password: str = PASSWORD
) -> AsyncIterator[LoggedIn]:
    """``user`` of the database ``source`` works on ``database``."""
    uri = f"mongodb://{quote_plus(user)}:{quote_plus(password)}@{LOOPBACK}:{port}/?authSource={quote_plus(source)}"
    authenticate = authenticator(uri)
    assert authenticate is not None
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: ServiceConnection(f"{LOOPBACK}:{port}"), LOOPBACK, port)
    try:
        await authenticate(connection)
        yield LoggedIn(connection, database)
    finally:
        connection.close()
