"""Relaying is compared with the server itself in tests/differential; here is what the proxy does beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import bson
import pytest
from bson import Binary, Int64

from catalog.errors import BackendUnavailable
from catalog.identity import NOBODY
from catalog.namespaces import Namespace
from proxy.observe.tasks import TaskSet
from proxy.relay.handler import RelayHandler, learn_identity
from proxy.request.attempt import Deposed
from proxy.request.command import Command, parse_command
from proxy.request.exchange import Exchange
from proxy.request.router import RELAY, Relay
from proxy.request.session import Session
from proxy.request.unanswered import Unanswered
from proxy.upstream.connection import Upstream
from proxy.upstream.dialing import Dialer
from proxy.wire.message import Message
from rewrite.plan import Effect, ForgetNamespace
from tests.support.eventually import eventually
from tests.support.exchanges import Told
from tests.support.fail_points import failing
from tests.support.mongod import MongodProcess
from tests.support.network import FakeClient
from tests.support.raw_wire import command, document_of

FORGET = ForgetNamespace(Namespace("d", "c"))


class Relayed:
    """A handler with a client in front of a real backend, or of none."""

    def __init__(self, port: int) -> None:
        async def address() -> tuple[str, int]:
            return "127.0.0.1", port

        self.effects: list[Effect] = []
        self.errors: list[BaseException] = []
        self.tasks = TaskSet(self.errors.append)
        self.announced: list[Effect] = []
        self.handler = RelayHandler(self.tasks, self.effects.append, self._announce, Unanswered())
        self.session = Session(1, "peer", Upstream(Dialer(address, None, 10.0), lambda: None))

    async def _announce(self, effects: Sequence[Effect]) -> None:
        self.announced += effects

    async def run(self, raw: bytes, route: Relay, parsed: Command | None = None) -> list[dict[str, object]]:
        client = FakeClient()
        exchange = Exchange(self.session, client, Message.from_bytes(raw), Told())
        exchange.command = parsed
        self.handler.start(exchange, route)
        while not client.finished and not client.closed:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert self.errors == []
        return [document_of(Message.from_bytes(written)) for written in client.written]


async def test_connection_is_opened_once_and_used_on(mongod: MongodProcess) -> None:
    relayed = Relayed(mongod.port)
    whoami = command({"whatsmyuri": 1, "$db": "admin"})
    first = await relayed.run(whoami, RELAY)
    assert first == await relayed.run(whoami, RELAY)
    relayed.session.upstream.close()


@pytest.mark.parametrize("acknowledged", [True, False])
async def test_effects_follow_what_was_done_and_not_what_was_refused(mongod: MongodProcess, acknowledged: bool) -> None:
    relayed = Relayed(mongod.port)
    flags = 0 if acknowledged else 2

    async def run(document: dict[str, object]) -> list[dict[str, object]]:
        raw = command({**document, "$db": "relay_effects"}, flags=flags)
        return await relayed.run(raw, Relay((FORGET,)))

    assert [reply["code"] for reply in await run({"drop": "nothing_here"})] == ([26] if acknowledged else [])
    assert relayed.effects == []
    await run({"create": "something"})
    assert relayed.effects == [FORGET]
    await run({"drop": "something"})
    assert relayed.effects == [FORGET, FORGET]
    relayed.session.upstream.close()


async def test_nothing_follows_what_was_never_sent() -> None:
    relayed = Relayed(1)
    assert await relayed.run(command({"drop": "x", "$db": "d"}, flags=2), Relay((FORGET,))) == []
    assert relayed.effects == []


@pytest.mark.parametrize(("name", "announced"), [("createIndexes", [FORGET]), ("insert", [])])
async def test_others_are_told_of_new_definitions_only(
    mongod: MongodProcess, db_name: str, name: str, announced: list[Effect]
) -> None:
    """Direct writes to buckets have effects, too, but others find out by the guards of their updates."""
    relayed = Relayed(mongod.port)
    content = {"createIndexes": {"indexes": [{"key": {"a": 1}, "name": "a"}]}, "insert": {"documents": [{}]}}
    raw = command({name: "c", **content[name], "$db": db_name})
    (reply,) = await relayed.run(raw, Relay((FORGET,)), parse_command(Message.from_bytes(raw)))
    assert reply["ok"] == 1
    assert relayed.effects == [FORGET]
    assert relayed.announced == announced
    relayed.session.upstream.close()


async def test_w102_which_transactions_are_open_is_recorded(replica_set: MongodProcess, db_name: str) -> None:
    relayed = Relayed(replica_set.port)
    fields: dict[str, Any] = {"lsid": {"id": Binary(uuid4().bytes, 4)}, "txnNumber": Int64(3), "autocommit": False}
    key = bson.encode(fields["lsid"]), NOBODY

    async def run(document: dict[str, object]) -> dict[str, object]:
        raw = command({**document, **fields})
        parsed = parse_command(Message.from_bytes(raw))
        if "startTransaction" in document:
            exchange = Exchange(relayed.session, FakeClient(), Message.from_bytes(raw), Told())
            relayed.handler.transaction_begins(exchange, parsed)
        (reply,) = await relayed.run(raw, RELAY, parsed)
        return reply

    for end in ("abortTransaction", "commitTransaction"):
        assert (await run({"insert": "c", "documents": [{}], "startTransaction": True, "$db": db_name}))["ok"] == 1
        assert relayed.session.open_transactions.numbers == {key: fields["txnNumber"]}
        with failing(replica_set, 1, failCommands=[end], errorCode=50):
            assert (await run({end: 1, "$db": "admin"}))["code"] == 50
        assert relayed.session.open_transactions.numbers == {key: fields["txnNumber"]}
        assert (await run({end: 1, "$db": "admin"}))["ok"] == 1
        assert not relayed.session.open_transactions.numbers
        fields["txnNumber"] = Int64(4)
    relayed.session.upstream.close()


async def test_the_end_of_a_transaction_may_find_no_primary(replica_set: MongodProcess) -> None:
    """As any other command: the next primary is looked for before the client hears of it."""
    relayed, told = Relayed(replica_set.port), Told()
    fields = {"lsid": {"id": Binary(uuid4().bytes, 4)}, "txnNumber": Int64(3), "autocommit": False}
    raw = command({"commitTransaction": 1, **fields, "$db": "admin"})
    exchange = Exchange(relayed.session, FakeClient(), Message.from_bytes(raw), told)
    exchange.command = parse_command(Message.from_bytes(raw))
    relayed.handler.transaction_begins(exchange, exchange.command)
    with failing(replica_set, 1, failCommands=["commitTransaction"], errorCode=10107):
        relayed.handler.start(exchange, RELAY)
        await eventually(lambda: bool(told.outcomes))
    assert isinstance(told.outcomes[0], Deposed)
    assert relayed.session.open_transactions.numbers
    relayed.session.upstream.close()


async def test_backend_that_is_not_there_is_an_error_reply() -> None:
    relayed = Relayed(1)
    for route in (RELAY, Relay((FORGET,))):
        (reply,) = await relayed.run(command({"ping": 1, "$db": "admin"}), route)
        assert reply["code"] == 6
        assert "127.0.0.1:1" in str(reply["errmsg"])


async def test_identity_is_what_the_backend_says(mongod: MongodProcess) -> None:
    client = mongod.shared_client
    client.identity.command("createUser", "somebody", pwd="secret", roles=[])
    try:
        relayed = Relayed(mongod.port)
        await learn_identity(relayed.session, {"ok": 1.0, "done": False})
        assert relayed.session.upstream.ready is None
        await learn_identity(relayed.session, {"ok": 1.0})
        assert relayed.session.identity == NOBODY
        relayed.session.upstream.close()
    finally:
        client.identity.command("dropUser", "somebody")
    with pytest.raises(BackendUnavailable):
        await learn_identity(Relayed(1).session, {"ok": 1.0})


async def test_login_over_the_proxy_is_noticed(mongod: MongodProcess) -> None:
    """SCRAM messages pass unread; the backend tells the outcome."""
    start = {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"n,,n=nobody,r=abcdefghijklmnopqrstuvwx"}
    relayed = Relayed(mongod.port)
    (reply,) = await relayed.run(command({**start, "$db": "admin"}), Relay(changes_identity=True))
    assert bson.encode(reply)
    assert relayed.session.identity == NOBODY
    (reply,) = await relayed.run(command({"logout": 1, "$db": "admin"}), Relay(changes_identity=True))
    assert reply["ok"] == 1.0
    relayed.session.upstream.close()
