"""Connections by name and port, and by the path of a socket."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from proxy.upstream.connecting import connect
from tests.support.ports import LOOPBACK, free_port


class Hearing(asyncio.Protocol):
    def __init__(self) -> None:
        self.heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.heard.set_result(data)


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"welcome")
    writer.close()


async def test_a_path_of_a_socket_is_a_host() -> None:
    with tempfile.TemporaryDirectory() as folder:  # paths of sockets must be short
        path = str(Path(folder) / "mongodb-27017.sock")
        async with await asyncio.start_unix_server(greet, path):
            transport, connection = await connect(Hearing, path, 27017, None)
            assert await connection.heard == b"welcome"
            transport.close()


async def test_a_name_is_reached_at_its_port() -> None:
    async with await asyncio.start_server(greet, LOOPBACK, 0) as server:
        transport, connection = await connect(Hearing, LOOPBACK, server.sockets[0].getsockname()[1], None)
        assert await connection.heard == b"welcome"
        transport.close()


async def test_nobody_there_is_an_error_of_the_system() -> None:
    with pytest.raises(ConnectionRefusedError):
        await connect(Hearing, LOOPBACK, free_port(), None)
    with pytest.raises(FileNotFoundError):
        await connect(Hearing, "/nowhere/mongodb-1.sock", 1, None)
