"""Replies to inserts are written a few at a time, so that nothing waits for hundreds of them."""

from __future__ import annotations

import asyncio
from functools import partial

import bson
import pytest
from bson import Timestamp

from catalog.ports import Acknowledgement
from proxy.inserts.paced_replies import REPLIES_IN_A_TURN, PacedReplies
from proxy.request.exchange import Exchange
from proxy.wire.message import Message
from tests.support.exchanges import Told
from tests.support.insert_messages import message as insert_message
from tests.support.network import FakeClient
from tests.support.sessions import session

DOCUMENT = bson.encode({"n": 1, "ok": 1.0})
RAW = bson.encode({"_id": 1})


class Clients:
    """Clients that wait for the reply to an insert."""

    def __init__(self, count: int, times: bytes = b"") -> None:
        self.reported: list[BaseException] = []
        self.replies = PacedReplies(self.reported.append, lambda: times)
        self.clients = [FakeClient() for _ in range(count)]

    def reply(self, client: FakeClient) -> None:
        message = Message.from_bytes(insert_message(RAW))
        self.replies.reply(Exchange(session(), client, message, Told()), DOCUMENT)

    def reply_to_all(self) -> None:
        for client in self.clients:
            self.reply(client)

    @property
    def written(self) -> int:
        return sum(bool(client.written) for client in self.clients)


async def test_each_turn_writes_a_few() -> None:
    clients = Clients(2 * REPLIES_IN_A_TURN + 1)
    clients.reply_to_all()
    seen = [clients.written]
    for _ in range(3):
        await asyncio.sleep(0)
        seen.append(clients.written)
    assert seen == [REPLIES_IN_A_TURN, 2 * REPLIES_IN_A_TURN, len(clients.clients), len(clients.clients)]
    assert all(len(client.written) == client.finished == 1 for client in clients.clients)


async def test_clients_that_are_settled_one_by_one_never_wait() -> None:
    clients = Clients(3 * REPLIES_IN_A_TURN)
    for number, client in enumerate(clients.clients):
        clients.reply(client)
        assert clients.written == number + 1
        await asyncio.sleep(0)


async def test_a_call_is_made_after_the_replies_before_it_and_before_those_after_it() -> None:
    clients = Clients(REPLIES_IN_A_TURN + 4)
    for client in clients.clients[:-2]:
        clients.reply(client)
    seen: list[int] = []
    assert clients.replies.queue(lambda: seen.append(clients.written))
    for client in clients.clients[-2:]:
        clients.reply(client)
    assert seen == []
    await asyncio.sleep(0)
    assert seen == [len(clients.clients) - 2]
    assert clients.written == len(clients.clients)


async def test_a_call_is_left_to_the_caller_if_no_reply_waits() -> None:
    clients = Clients(REPLIES_IN_A_TURN)
    clients.reply_to_all()
    assert not clients.replies.queue(partial(pytest.fail, "called"))
    await asyncio.sleep(0)


async def test_a_reply_that_fails_is_reported_and_the_others_are_written() -> None:
    class Failing(FakeClient):
        def write(self, data: bytes) -> None:
            raise ZeroDivisionError

    clients = Clients(REPLIES_IN_A_TURN + 3)
    clients.clients[REPLIES_IN_A_TURN] = Failing()
    clients.reply_to_all()
    await asyncio.sleep(0)
    assert [type(error) for error in clients.reported] == [ZeroDivisionError]
    assert clients.written == len(clients.clients) - 1


async def test_a_call_that_fails_is_reported_and_the_replies_behind_it_are_written() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    clients = Clients(REPLIES_IN_A_TURN + 3)
    for client in clients.clients[:-1]:
        clients.reply(client)
    assert clients.replies.queue(fail)
    clients.reply(clients.clients[-1])
    await asyncio.sleep(0)
    assert [type(error) for error in clients.reported] == [ZeroDivisionError]
    assert clients.written == len(clients.clients)


async def test_what_a_client_sends_next_may_be_answered_while_replies_are_written() -> None:
    """A reply starts the client's next command, which may be refused at once."""
    clients = Clients(REPLIES_IN_A_TURN + 2)

    class Sending(FakeClient):
        def finish(self) -> None:
            super().finish()
            if self.finished == 1:
                clients.reply(self)

    clients.clients[-1] = Sending()
    clients.reply_to_all()
    await asyncio.sleep(0)
    assert clients.clients[-1].finished == 2


def test_replies_that_no_commit_has_made_have_the_latest_cluster_times() -> None:
    times = {"$clusterTime": {"clusterTime": Timestamp(5, 1)}, "operationTime": Timestamp(5, 1)}
    refused, told = {"n": 0, "ok": 1.0}, {"ok": 0.0, **times}
    clients = Clients(3, bson.encode(times)[4:-1])
    replied = []
    for client, document, acknowledgement in zip(
        clients.clients, (refused, refused, told), (None, Acknowledgement(), None), strict=True
    ):
        exchange = Exchange(session(), client, Message.from_bytes(insert_message(RAW)), Told())
        clients.replies.reply(exchange, bson.encode(document), acknowledgement)
        replied.append(bson.decode(bytes(client.written[0])[21:]))
    assert replied == [{**refused, **times}, refused, told]
