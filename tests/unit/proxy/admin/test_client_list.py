"""Connections as ``clients`` shows them; tests/clients/test_admin.py has real ones."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from catalog.errors import CommandError
from catalog.identity import identity_of
from proxy.admin.client_list import LOOKED_AT_ONCE, ClientList, describe, state_of
from tests.support.admin_calls import Asking, FakeConnection
from tests.support.sessions import session


def connected(number: int, document: dict[str, Any] | None = None) -> FakeConnection:
    client = session(identity_of([("u", "app")]) if number % 2 else identity_of([]))
    client.connection_id = number
    client.came_at_seconds = 1.0
    asking = Asking(client)
    connection = FakeConnection(asking, None if document is None else asking.exchange(document))
    connection.active_at_seconds = 2.0
    if connection.exchange is not None:
        connection.exchange.started_seconds = 100.0 - number
    return connection


def listing(connections: list[FakeConnection]) -> ClientList:
    return ClientList(lambda: connections, [], lambda: 5.0, lambda: 100.0)


async def listed(connections: list[FakeConnection], **fields: Any) -> dict[str, Any]:
    return dict(await listing(connections).actions["clients"](Asking().call("clients", **fields)))


def test_states() -> None:
    running, watching = connected(1, {"find": "c"}), connected(2, {"hello": 1})
    assert running.exchange is not None
    assert (state_of(running, []), state_of(running, [running.exchange])) == ("running", "held")
    assert state_of(watching, []) == "monitoring"
    idle, receiving = connected(3), connected(4)
    receiving.is_busy = True
    assert (state_of(idle, []), state_of(receiving, [])) == ("idle", "receiving")


def test_what_a_client_says_of_itself_is_shown_and_no_values() -> None:
    connection = connected(7, {"find": "c", "filter": {"a": "secret"}, "$db": "d"})
    assert connection.session is not None
    program = {"driver": {"name": "d", "version": "7"}, "application": {"name": "app"}}
    connection.session.upstream.hello = bson.encode({"hello": 1, "client": program})
    assert describe(connection, "running", 5.0, 100.0) == {
        "connection": 7,
        "address": "203.0.113.9:5",
        "state": "running",
        "command": "find",
        "ns": "d.c",
        "seconds": 7.0,
        "connectedSeconds": 4.0,
        "users": ["u@app"],
        "driver": {"name": "d", "version": "7"},
        "application": "app",
    }
    assert describe(connected(2), "idle", 5.0, 100.0)["idleSeconds"] == 3.0


@pytest.mark.parametrize("program", [None, 5, {}, {"driver": 5, "application": {"name": ""}}], ids=str)
def test_odd_greetings_are_no_error(program: Any) -> None:
    connection = connected(2)
    assert connection.session is not None
    connection.session.upstream.hello = bson.encode({"hello": 1, "client": program})
    assert not {"driver", "application"} & set(describe(connection, "idle", 5.0, 100.0))


async def test_longest_commands_come_first_and_the_list_is_limited() -> None:
    connections = [connected(number, {"find": "c"}) for number in range(LOOKED_AT_ONCE * 2)]
    shown = await listed(connections)
    assert [each["connection"] for each in shown["clients"]] == list(range(499, 399, -1))
    assert (shown["matching"], shown["total"]) == (500, 500)
    assert len((await listed(connections, limit=300))["clients"]) == 300
    assert (await listed(connections, minSeconds=490))["matching"] == 10


async def test_filters() -> None:
    connections = [connected(1, {"find": "c"}), connected(2), connected(3)]
    assert (await listed(connections, state="idle"))["matching"] == 2
    assert (await listed(connections, user="u@app"))["matching"] == 2
    assert (await listed(connections, user="u@app", state="idle"))["matching"] == 1
    assert (await listed(connections, address="203.0.113.9:5"))["matching"] == 3
    assert (await listed(connections, address="peer"))["matching"] == 3
    assert (await listed(connections, address="203.0.113.9"))["matching"] == 0
    with pytest.raises(CommandError, match="idle, running, held"):
        await listed(connections, state="asleep")


async def test_kill_finds_its_connection_and_spares_its_own() -> None:
    connections = [connected(1), connected(2)]
    kill = listing(connections).actions["kill"]
    assert await kill(Asking(connections[0].session).call("kill", connection=2)) == {
        "killed": 2,
        "address": "203.0.113.9:5",
    }
    assert [each.aborted for each in connections] == [False, True]
    for number in (1, 3):
        with pytest.raises(CommandError):
            await kill(Asking(connections[0].session).call("kill", connection=number))


def test_long_names_of_clients_are_cut() -> None:
    """Clients can invent names of any length, also of commands that are not parsed yet."""
    for is_parsed in (False, True):
        connection = connected(2, {"x" * 100_000: "y" * 100_000, "$db": "d"})
        assert connection.exchange is not None
        if is_parsed:
            connection.exchange.parsed()
        shown = describe(connection, "running", 5.0, 100.0)
        assert len(shown["command"]) + len(shown["ns"]) <= 512
