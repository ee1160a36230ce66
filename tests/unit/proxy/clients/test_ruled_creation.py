"""Which commands a rule holds back, what is sent for them, and what becomes of them.

``tests/differential/test_ruled_collections.py`` shows the same with a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import bson
import pytest
from structlog.testing import capture_logs

from catalog.errors import BackendUnavailable
from catalog.namespaces import Namespace
from proxy.clients.ruled_creation import SPLIT, SPLIT_REMEDY, STAYS_ORDINARY, RuledCreation
from proxy.request.attempt import NotTranslatable, Outcome, Refused, Replied, Unreachable
from proxy.request.exchange import Exchange
from proxy.request.name_use import NameUse
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

    ``uses``: what each look finds, the last one also later. ``may``: the actions that the client may take; all by
    default.
    """

    def __init__(
        self,
        *replies: Mapping[str, Any] | Exception,
        uses: Sequence[NameUse] = (NameUse.FREE,),
        may: tuple[str, ...] | None = None,
    ) -> None:
        self.now_seconds = 0.0
        self.forgotten: list[Namespace] = []
        self.went_on = 0
        self.upstream = ScriptedUpstream(*replies)
        self._uses = list(uses)
        self.creation = RuledCreation(
            RULES, self, self.use_of, self.forgotten.append, self.now, 5.0, replicates=True, pause_seconds=0.1
        )
        self.may = may
        self.looked = 0

    def must_log_in(self, session: Session) -> bool:
        raise AssertionError

    def known(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool | None:
        raise AssertionError

    async def allows(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool:
        assert namespace == CPU
        return self.may is None or set(actions) <= set(self.may)

    def now(self) -> float:
        """Each look takes a part of a second."""
        self.now_seconds += 0.0625
        return self.now_seconds

    async def use_of(self, namespace: Namespace) -> NameUse:
        self.looked += 1
        return self._uses.pop(0) if len(self._uses) > 1 else self._uses[0]

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


INDEXES = {"createIndexes": "cpu", "indexes": [{"key": {"a": 1}, "name": "a_1"}], "$db": "db"}
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
    world = World(EXISTS, uses=(NameUse.FREE, NameUse.TIMESERIES))
    assert await world.run(INSERT) is None
    assert (world.went_on, world.forgotten) == (1, [CPU, CPU])


async def test_buckets_of_another_create_are_waited_for() -> None:
    world = World(EXISTS, EXISTS, uses=(NameUse.FREE, NameUse.BUCKETS_ALONE, NameUse.TIMESERIES))
    assert await world.run(INSERT) is None
    assert (world.went_on, world.looked) == (1, 3)


@pytest.mark.parametrize("use", [NameUse.SPLIT, NameUse.BUCKETS_ALONE])
async def test_h16_nothing_is_inserted_where_nobody_could_read_it(use: NameUse) -> None:
    world = World(*[EXISTS] * 6, uses=(NameUse.FREE, use))
    with capture_logs() as logs:
        outcome = await world.run(INSERT)
    assert isinstance(outcome, Refused)
    assert outcome.error.code == 48
    assert "db.system.buckets.cpu" in outcome.error.message
    assert SPLIT_REMEDY in outcome.error.message
    assert [(line["event"], line["collection"]) for line in logs] == [(SPLIT, "db.cpu")]
    assert world.went_on == 0


async def test_h16_other_commands_on_such_a_name_are_for_the_backend() -> None:
    for document in (INDEXES, CREATE):
        world = World(uses=(NameUse.SPLIT,))
        assert await world.run(document) == NotTranslatable(None)
        assert world.upstream.asked == []


async def test_h16_a_second_look_before_an_insert_into_a_new_ordinary_collection() -> None:
    world = World(uses=(NameUse.OTHER, NameUse.SPLIT))
    assert isinstance(await world.run(INSERT), Refused)


async def test_commands_that_the_backend_refuses_create_nothing() -> None:
    for document in ({**INSERT, "documents": []}, {**INSERT, "zz": 1}, {**INDEXES, "indexes": []}):
        world = World()
        assert await world.run(document) == NotTranslatable(None)
        assert world.upstream.asked == []


async def test_others_wait_for_a_creation() -> None:
    world, done, went_on = World(), asyncio.Event(), list[Exchange]()

    class Slow(ScriptedUpstream):
        async def run(self, *arguments: Any, **named: Any) -> bytes:
            await done.wait()
            return await super().run(*arguments, **named)

    world.upstream = Slow(OK)
    creating = asyncio.ensure_future(world.run(INSERT))
    await asyncio.sleep(0.01)
    upsert = exchange_of({"update": "cpu", "updates": [], "$db": "db"})
    assert world.creation.disturbed_by(upsert.parsed())
    waiting = asyncio.ensure_future(world.creation.wait(upsert, went_on.append))
    await asyncio.sleep(0.01)
    assert went_on == []
    done.set()
    await asyncio.gather(creating, waiting)
    assert went_on == [upsert]
    assert not world.creation.disturbed_by(upsert.parsed())
    assert not world.creation.goes_on(upsert)


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
    world = World(uses=(NameUse.OTHER,))
    assert not world.creation.is_settled(CPU)
    with capture_logs() as logs:
        assert await world.run(INSERT) == NotTranslatable(None)
        assert not world.creation.is_settled(CPU)
        world.now_seconds = 2.5
        await world.run(INSERT)
    assert [line["event"] for line in logs] == [STAYS_ORDINARY]
    assert (world.went_on, world.forgotten, world.upstream.asked) == (0, [CPU], [])
    assert world.creation.is_settled(CPU)
    world.now_seconds = 8.0
    assert not world.creation.is_settled(CPU)
    await world.run(INSERT)
    assert world.creation.is_settled(CPU)
    assert world.forgotten == [CPU]
    for changed in (CPU, Namespace("db", "")):
        world.creation.forgotten(changed)
        assert not world.creation.is_settled(CPU)


async def test_a_time_series_collection_is_settled_at_once() -> None:
    world = World(uses=(NameUse.TIMESERIES,))
    assert await world.run(INSERT) is None
    assert (world.went_on, world.looked) == (1, 1)
    assert world.creation.is_settled(CPU)


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
