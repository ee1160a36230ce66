"""Which server a client's own connection goes to, and which not for the moment."""

from __future__ import annotations

import asyncio
import os
import resource

import pytest

from catalog.errors import BackendUnavailable
from proxy.upstream.dialing import Dialer, parse_upstream_name, upstream_name
from proxy.upstream.file_limit import RESERVED, NoFilesLeft
from tests.support.ports import LOOPBACK, free_port


def test_names_are_written_as_in_a_connection_string() -> None:
    assert upstream_name("db.example", 27018) == "db.example:27018"
    assert upstream_name("db.example", None) == "db.example:27017"
    assert upstream_name("::1", 1) == "[::1]:1"
    assert parse_upstream_name("[::1]:1") == ("::1", 1)
    assert parse_upstream_name("db.example:27018") == ("db.example", 27018)


async def test_unreachable_server_is_told_with_its_name() -> None:
    port = free_port()

    async def address() -> tuple[str, int]:
        return LOOPBACK, port

    with pytest.raises(BackendUnavailable, match=f"{LOOPBACK}:{port}"):
        await Dialer(address, None, 1.0).dial(lambda: None)


async def test_server_that_steps_down_is_avoided_for_a_moment() -> None:
    async def address() -> tuple[str, int]:
        return "db.example", 27017

    dialer = Dialer(address, None, 1.0)
    dialer.avoid("db.example:27017")
    with pytest.raises(BackendUnavailable, match="stepping down") as refused:
        await dialer.dial(lambda: None)
    assert refused.value.code == 10107


async def test_the_last_files_are_not_for_connections_of_clients() -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), LOOPBACK)
    port = server.sockets[0].getsockname()[1]

    async def address() -> tuple[str, int]:
        return LOOPBACK, port

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.open(os.devnull, os.O_RDONLY)
    os.close(probe)
    try:
        for limit, reason in ((probe + RESERVED, "the proxy has too many open files"), (probe, "Too many open files")):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            with pytest.raises(NoFilesLeft, match=reason):
                await Dialer(address, None, 5.0).dial(lambda: None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        server.close()
