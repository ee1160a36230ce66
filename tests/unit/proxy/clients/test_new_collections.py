"""Which inserts are looked at, and what is told of them."""

from __future__ import annotations

import asyncio
from typing import Any

from structlog.testing import capture_logs

from catalog.errors import BackendUnavailable
from catalog.namespaces import Namespace
from proxy.clients.new_collections import WARNING, NewCollections
from proxy.clients.ruled_creation import RuledCreation
from proxy.clients.server import OpenGate
from proxy.request.command import Command, parse_command
from proxy.request.exchange import Exchange
from proxy.request.name_use import NameUse
from proxy.settings.collection_rules import parse_rules
from proxy.wire.reader import MessageReader
from tests.support.exchanges import Told
from tests.support.network import FakeClient
from tests.support.sessions import session
from tests.support.wire import op_msg

PLAIN = Namespace("db", "plain")


def command(document: dict[str, Any]) -> Command:
    reader = MessageReader()
    reader.feed(op_msg(document))
    message = reader.next()
    assert message is not None
    return parse_command(message)


def insert(collection: str, database: str = "db") -> dict[str, Any]:
    return {"insert": collection, "documents": [{}], "$db": database}


async def exists_not(namespace: Namespace) -> bool:
    return False


async def cannot_say(namespace: Namespace) -> bool:
    raise BackendUnavailable("gone")


def exchange(document: dict[str, Any]) -> Exchange:
    message = command(document).message
    return Exchange(session(), FakeClient(), message, Told())


def first_look(found: NewCollections, document: dict[str, Any], went_on: list[str]) -> bool:
    held = exchange(document)
    return found.looks_first(held, held.parsed(), lambda each: went_on.append(str(each.parsed().namespace)))


async def test_only_the_first_insert_into_a_name_waits_for_a_look() -> None:
    went_on: list[str] = []
    found = NewCollections(cannot_say, asyncio.ensure_future)
    assert first_look(found, insert("plain"), went_on)
    assert not first_look(found, insert("plain"), went_on)
    assert first_look(found, insert("plain", "other"), went_on)
    for other in ({"find": "new", "$db": "db"}, insert("system.js"), {"create": "x", "$db": "db"}):
        assert not first_look(found, other, went_on)
    assert went_on == []
    await asyncio.sleep(0.01)
    assert went_on == ["db.plain", "other.plain"]
    assert not found.governs(command(insert("plain")))


async def test_a_rule_is_looked_at_each_time_until_the_name_exists() -> None:
    async def use_of(namespace: Namespace) -> NameUse:
        return NameUse.TIMESERIES

    went_on: list[str] = []
    loop = asyncio.get_running_loop()
    rules = parse_rules(["db.* -> timeField=t"])
    found = NewCollections(
        cannot_say,
        asyncio.ensure_future,
        ruled=RuledCreation(rules, OpenGate(), use_of, lambda _: None, loop.time, refresh_seconds=60, replicates=True),
    )
    assert found.governs(command(insert("plain")))
    assert found.governs(command({**insert("plain"), "autocommit": False}))
    assert not found.governs(command({"find": "plain", "$db": "db"}))
    assert first_look(found, insert("plain"), went_on)
    assert first_look(found, {"create": "plain", "$db": "db"}, went_on)
    await asyncio.sleep(0.01)
    assert went_on == ["db.plain", "db.plain"]
    assert not first_look(found, insert("plain"), went_on)


async def test_warning_names_the_collection() -> None:
    with capture_logs() as logs:
        await NewCollections(cannot_say, asyncio.ensure_future).look(PLAIN)
        assert logs == []
        await NewCollections(exists_not, asyncio.ensure_future).look(PLAIN)
    recorded: list[tuple[str, str]] = []
    await NewCollections(exists_not, asyncio.ensure_future, lambda *said: recorded.append(said)).look(PLAIN)
    assert recorded == [("db.plain", WARNING)]
    assert [(line["event"], line["collection"], line["log_level"]) for line in logs[:1]] == [
        (WARNING, "db.plain", "warning")
    ]
