from __future__ import annotations

import threading

import bson
import pytest

from proxy.clients.unwrapping import Unwrapping
from proxy.wire import op_compressed, op_msg
from proxy.wire.limits import MAX_MESSAGE_SIZE_BYTES
from proxy.wire.message import Message
from tests.support.network import FakeClient
from tests.support.raw_wire import compressed

RAW = op_msg.build(1, 0, bson.encode({"ping": 1, "text": "v" * 500_000, "$db": "admin"}))


class Inside:
    abandoned = False

    def abandon(self) -> None:
        self.abandoned = True


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    used: list[threading.Thread] = []
    unwrap = op_compressed.unwrap

    def watched(message: Message, max_size_bytes: int) -> Message:
        used.append(threading.current_thread())
        return unwrap(message, max_size_bytes)

    monkeypatch.setattr(op_compressed, "unwrap", watched)
    return used


async def test_the_message_inside_is_started_when_a_thread_has_expanded_it(threads: list[threading.Thread]) -> None:
    started: list[bytes] = []
    inside = Inside()

    def start(message: Message) -> Inside:
        started.append(message.raw)
        return inside

    unwrapping = Unwrapping(FakeClient(), start)
    await unwrapping.run(Message.from_bytes(compressed(RAW, 2)), MAX_MESSAGE_SIZE_BYTES)
    assert started == [RAW]
    assert threading.main_thread() not in threads
    unwrapping.abandon()
    assert inside.abandoned


async def test_what_cannot_be_expanded_ends_the_connection() -> None:
    client = FakeClient()
    unwrapping = Unwrapping(client, lambda message: Inside())
    await unwrapping.run(Message.from_bytes(compressed(RAW, 2, squeezed=b"no zlib")), MAX_MESSAGE_SIZE_BYTES)
    assert client.closed


async def test_nothing_is_started_for_a_client_that_left() -> None:
    started: list[Message] = []

    def start(message: Message) -> Inside:
        started.append(message)
        return Inside()

    unwrapping = Unwrapping(FakeClient(), start)
    unwrapping.abandon()
    await unwrapping.run(Message.from_bytes(compressed(RAW, 2)), MAX_MESSAGE_SIZE_BYTES)
    assert started == []
