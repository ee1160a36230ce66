"""Which inserts are looked at, and what is told of them."""

from __future__ import annotations

import asyncio
from typing import Any

from structlog.testing import capture_logs

from catalog.errors import BackendUnavailable
from catalog.namespaces import Namespace
from proxy.clients.new_collections import WARNING, NewCollections
from proxy.request.command import Command, parse_command
from proxy.request.exchange import Exchange
from proxy.wire.message import Message
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


def insert(collection: str, database: str = "db") -> Command:
    return command({"insert": collection, "documents": [{}], "$db": database})


def exchange() -> Exchange:
    message = Message.from_bytes(op_msg({"insert": "plain", "$db": "db"}))
    return Exchange(session(), FakeClient(), message, Told())


async def exists_not(namespace: Namespace) -> bool:
    return False


async def cannot_say(namespace: Namespace) -> bool:
    raise BackendUnavailable("gone")


async def test_only_the_first_insert_into_a_name_waits_for_a_look() -> None:
    went_on: list[str] = []
    found = NewCollections(cannot_say, asyncio.ensure_future)
    assert found.looks_first(exchange(), insert("plain"), lambda: went_on.append("plain"))
    assert not found.looks_first(exchange(), insert("plain"), lambda: went_on.append("again"))
    assert found.looks_first(exchange(), insert("plain", "other"), lambda: went_on.append("other"))
    for other in (command({"find": "new", "$db": "db"}), insert("system.js")):
        assert not found.looks_first(exchange(), other, lambda: went_on.append("not"))
    assert went_on == []
    await asyncio.sleep(0.01)
    assert went_on == ["plain", "other"]


async def test_warning_names_the_collection() -> None:
    with capture_logs() as logs:
        await NewCollections(cannot_say, asyncio.ensure_future).look(PLAIN)
        assert logs == []
        await NewCollections(exists_not, asyncio.ensure_future).look(PLAIN)
    recorded: list[tuple[str, str]] = []
    await NewCollections(exists_not, asyncio.ensure_future, lambda *said: recorded.append(said)).look(PLAIN)
    assert recorded == [("db.plain", WARNING)]
    assert [(line["event"], line["collection"], line["log_level"]) for line in logs] == [
        (WARNING, "db.plain", "warning")
    ]
