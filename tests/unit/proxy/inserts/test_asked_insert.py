"""Inserts that wait for the end of a transaction (W102). How others are asked is tested with two proxies."""

from __future__ import annotations

import bson
import pytest
from bson import Int64

from catalog.commit.statements import StatementLog
from catalog.errors import BackendUnavailable
from catalog.identity import NOBODY
from proxy.inserts.ingest import InsertHandler
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_templates import InsertTemplate
from proxy.request.exchange import Exchange
from proxy.wire.message import Message
from tests.support.committer_bench import CommitterBench
from tests.support.eventually import eventually
from tests.support.exchanges import Told
from tests.support.insert_messages import message as insert_message
from tests.support.network import FakeClient
from tests.support.raw_wire import document_of
from tests.support.scripted_session import Reply, ScriptedUpstream
from tests.support.sessions import session

SESSION = bson.encode({"id": 1})
CLIENT = (SESSION, NOBODY)
ROW = bson.encode({"_id": 1, "t": bson.DatetimeMS(0), "m": 1})


class World:
    """The session has a transaction with the number 5."""

    def __init__(self, *replies: Reply) -> None:
        self.bench = CommitterBench()
        self.handler = InsertHandler(
            self.bench.catalog, self.bench.committer, StatementLog(), max_pending_bytes=1 << 20, retryable_writes=True
        )
        self.upstream = ScriptedUpstream(*replies)
        self.session = session()
        self.session.upstream = self.upstream  # type: ignore[assignment]
        self.session.open_transactions.begun(CLIENT, 5)

    def insert(self, number: int) -> FakeClient:
        client = FakeClient()
        command = InsertCommand((b"",), True, b"", SESSION, None, None, True, 0)
        template = InsertTemplate(self.handler, command, self.bench.virtual)
        exchange = Exchange(self.session, client, Message.from_bytes(insert_message(ROW)), Told())
        self.handler.submit(exchange, template, (ROW,), SESSION, number)
        return client


@pytest.mark.parametrize("reply", [{"ok": 1.0}, BackendUnavailable("gone")])
async def test_w102_a_newer_number_ends_the_transaction_first(reply: Reply) -> None:
    world = World(reply)
    client = world.insert(6)
    assert world.handler.uncommitted() == (1, len(ROW))
    await eventually(lambda: bool(client.written))
    assert document_of(Message.from_bytes(client.written[0]))["n"] == 1
    ended = {"abortTransaction": 1, "lsid": {"id": 1}, "txnNumber": Int64(5), "autocommit": False}
    assert world.upstream.asked == [("admin", ended)]
    assert not world.session.open_transactions.numbers
    assert world.handler.uncommitted() == (0, 0)


@pytest.mark.parametrize(("number", "code"), [(4, 225), (5, 217)])
async def test_w102_other_numbers_are_refused_as_by_the_server(number: int, code: int) -> None:
    world = World()
    client = world.insert(number)
    assert document_of(Message.from_bytes(client.written[0]))["code"] == code
    assert (world.handler.uncommitted(), world.upstream.asked) == ((0, 0), [])
