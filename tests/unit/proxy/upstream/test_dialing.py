"""Which server a client's own connection goes to, and which not for the moment."""

from __future__ import annotations

import pytest

from catalog.errors import BackendUnavailable
from proxy.upstream.dialing import Dialer, parse_upstream_name, upstream_name
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
