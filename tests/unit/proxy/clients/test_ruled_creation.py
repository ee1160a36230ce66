"""Which commands a rule holds back, what is sent for them, and what becomes of them.

``tests/differential/test_ruled_collections.py`` shows the same with a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson
import pytest

from catalog.errors import BackendUnavailable
from catalog.namespaces import Namespace
from proxy.clients.ruled_creation import RuledCreation
from proxy.request.attempt import NotTranslatable, Outcome, Refused, Replied, Unreachable
from proxy.request.exchange import Exchange
from proxy.request.session import Session
from proxy.settings.collection_rules import parse_rules
from proxy.wire.message import Message
from tests.support.exchanges import Told
from tests.support.network import FakeClient
from tests.support.scripted_session import ScriptedUpstream
from tests.support.sessions import session
from tests.support.wire import op_msg

CPU = Namespace("db", "cpu")
INSERT = {"insert": "cpu", "documents": [{}], "lsid": {"id": bson.Binary(bytes(16), 4)}, "$db": "db"}
RULES = parse_rules(["db.* -> timeField=t metaField=m expireAfterSeconds=60"])
OK = {"ok": 1.0}
EXISTS = {"ok": 0.0, "code": 48, "errmsg": "exists"}
REFUSED = {"ok": 0.0, "code": 13, "errmsg": "not authorized"}


def exchange_of(document: Mapping[str, Any], upstream: Any = None) -> Exchange:
    client = session()
    client.upstream = upstream
    return Exchange(client, FakeClient(), Message.from_bytes(op_msg(document)), Told())


class World:
    """A creation with a backend that gives scripted replies.

    ``may``: the actions that the client may take; all by default.
    """

    def __init__(
        self, *replies: Mapping[str, Any] | Exception, exists: bool = False, may: tuple[str, ...] | None = None
    ) -> None:
        self.now_seconds = 0.0
        self.forgotten: list[Namespace] = []
        self.went_on = 0
        self.upstream = ScriptedUpstream(*replies)
        self._exists = exists
        self.creation = RuledCreation(RULES, self, self.exists, self.forgotten.append, lambda: self.now_seconds, 5.0)
        self.may = may
        self.looked = 0

    def must_log_in(self, session: Session) -> bool:
        raise AssertionError

    def known(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool | None:
        raise AssertionError

    async def allows(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool:
        assert namespace == CPU
        return self.may is None or set(actions) <= set(self.may)

    async def exists(self, namespace: Namespace) -> bool:
        self.looked += 1
        return self._exists

    def go_on(self, exchange: Exchange) -> None:
        self.went_on += 1

    async def run(self, document: Mapping[str, Any]) -> Outcome | None:
        exchange = exchange_of(document, self.upstream)
        rule = self.creation.rule_of(exchange.parsed())
        assert rule is not None
        await self.creation.create(exchange, rule, self.go_on)
        assert isinstance(exchange.attempts, Told)
        return exchange.attempts.outcomes[-1] if exchange.attempts.outcomes else None


async def test_an_insert_goes_on_after_the_creation() -> None:
    world = World(OK)
    assert await world.run(INSERT) is None
    assert world.upstream.asked == [
        (
            "db",
            {
                "create": "cpu",
                "timeseries": {"timeField": "t", "metaField": "m"},
                "expireAfterSeconds": 60,
                "lsid": INSERT["lsid"],
            },
        )
    ]
    assert (world.went_on, world.forgotten) == (1, [CPU])


INDEXES = {"createIndexes": "cpu", "indexes": [], "$db": "db"}
CREATE = {"create": "cpu", "$db": "db"}


@pytest.mark.parametrize(
    ("document", "may"),
    [
        (INSERT, ("find", "createCollection")),
        ({**INSERT, "bypassDocumentValidation": True}, ("insert",)),
        (INDEXES, ("insert", "createCollection")),
        (CREATE, ("find", "createIndex")),
    ],
)
async def test_who_may_not_send_a_command_learns_nothing(document: Mapping[str, Any], may: tuple[str, ...]) -> None:
    """Nothing is looked for and nothing is created: the command is for the backend, which refuses it."""
    world = World(may=may)
    assert isinstance(await world.run(document), NotTranslatable)
    assert (world.went_on, world.looked, world.upstream.asked) == (0, 0, [])


@pytest.mark.parametrize(
    ("document", "may"),
    [(INSERT, "insert"), (INDEXES, "createIndex"), (CREATE, "createCollection"), (CREATE, "insert")],
)
async def test_who_may_send_a_command_has_the_rule(document: Mapping[str, Any], may: str) -> None:
    world = World(OK, may=(may,))
    await world.run(document)
    assert [next(iter(asked)) for _, asked in world.upstream.asked] == ["create"]


async def test_another_was_faster() -> None:
    world = World(EXISTS)
    assert await world.run(INSERT) is None
    assert (world.went_on, world.forgotten) == (1, [CPU])


async def test_the_refusal_is_the_reply() -> None:
    world = World(REFUSED)
    outcome = await world.run(INSERT)
    assert isinstance(outcome, Replied)
    assert outcome.document is not None
    assert bson.decode(outcome.document) == REFUSED
    assert (world.went_on, world.forgotten) == (0, [])


async def test_a_create_gets_the_reply_to_its_own() -> None:
    for reply in (OK, EXISTS):
        world = World(reply)
        outcome = await world.run({"create": "cpu", "expireAfterSeconds": 5, "comment": "c", "$db": "db"})
        assert isinstance(outcome, Replied)
        assert world.went_on == 0
        assert world.upstream.asked[0][1] == {
            "create": "cpu",
            "expireAfterSeconds": 5,
            "comment": "c",
            "timeseries": {"timeField": "t", "metaField": "m"},
        }


async def test_a_lost_backend_ends_the_command() -> None:
    world = World(BackendUnavailable("gone"))
    assert isinstance(await world.run(INSERT), Unreachable)
    assert world.went_on == 0


async def test_a_command_with_odd_session_fields_is_for_the_backend() -> None:
    world = World()
    assert await world.run({**INSERT, "lsid": 5}) == NotTranslatable(None)
    assert world.upstream.asked == []


async def test_a_name_that_exists_is_settled_for_a_while() -> None:
    world = World(exists=True)
    assert not world.creation.is_settled(CPU)
    assert await world.run(INSERT) is None
    assert (world.went_on, world.forgotten, world.upstream.asked) == (1, [CPU], [])
    assert world.creation.is_settled(CPU)
    world.now_seconds = 5.0
    assert not world.creation.is_settled(CPU)
    await world.run(INSERT)
    assert world.creation.is_settled(CPU)
    assert world.forgotten == [CPU]
    for changed in (CPU, Namespace("db", "")):
        world.creation.forgotten(changed)
        assert not world.creation.is_settled(CPU)
        await world.run(INSERT)


@pytest.mark.parametrize(
    "document",
    [
        {"find": "cpu", "$db": "db"},
        {"update": "cpu", "updates": [{"q": {}, "u": {}, "upsert": True}], "$db": "db"},
        {"insert": "cpu", "documents": [], "$db": "other"},
        {"insert": 1, "documents": [], "$db": "db"},
        {"insert": "cpu", "documents": [], "autocommit": False, "$db": "db"},
        {"insert": "system.buckets.cpu", "documents": [], "$db": "db"},
        {"create": "cpu", "capped": True, "$db": "db"},
        {"create": "cpu", "validator": {}, "$db": "db"},
        {"create": "cpu", "timeseries": {"timeField": "x"}, "$db": "db"},
        {"create": "cpu", "viewOn": "x", "$db": "db"},
    ],
)
def test_commands_that_no_rule_is_for(document: dict[str, Any]) -> None:
    assert World().creation.rule_of(exchange_of(document).parsed()) is None


async def test_internal_errors_end_the_command() -> None:
    world = World(ValueError("bug"))
    outcome = await world.run(INSERT)
    assert outcome is not None
    assert not isinstance(outcome, Replied | Refused)
