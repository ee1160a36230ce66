from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable

import bson
import pytest

from catalog.errors import CommandError
from proxy.clients import unwrapping as unwrapping_module
from proxy.clients.unwrapping import Unwrapping
from proxy.wire import op_compressed, op_msg
from proxy.wire.limits import MAX_MESSAGE_SIZE_BYTES
from proxy.wire.message import Message
from tests.support.network import FakeClient
from tests.support.raw_wire import compressed

RAW = op_msg.build(1, 0, bson.encode({"ping": 1, "text": "v" * 500_000, "$db": "admin"}))


class Inside:
    abandoned = False

    def __init__(self, *, wants_reply: bool = True) -> None:
        self.wants_reply = wants_reply

    def abandon(self) -> None:
        self.abandoned = True

    def goes_on_alone(self) -> bool:
        return not self.wants_reply

    def waited_for_turn(self, since_seconds: float) -> None:
        raise AssertionError


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    used: list[threading.Thread] = []
    unwrap = op_compressed.unwrap

    def watched(message: Message, max_size_bytes: int, *, rest: Callable[[], None]) -> Message:
        used.append(threading.current_thread())
        return unwrap(message, max_size_bytes, rest=rest)

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


async def test_a_large_message_is_put_together_and_parsed_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when its documents are in the body, and when something is wrong with it."""
    rested: list[threading.Thread] = []
    monkeypatch.setattr(unwrapping_module, "_rest", lambda: rested.append(threading.current_thread()))
    rows = [{"_id": number, "text": "v" * 1_000} for number in range(1_000)]
    body = bson.encode({"insert": "c", "documents": rows, "$db": "db"})
    sequence = op_msg.build(3, 0, bson.encode({"insert": "c", "$db": "db"}), [("documents", map(bson.encode, rows))])
    broken = sequence[:-1] + b"x"
    started: list[Message] = []

    def start(message: Message) -> Inside:
        started.append(message)
        return Inside()

    for raw in (op_msg.build(2, 0, body), sequence, broken):
        message = Message(b"", *struct.unpack_from("<3i", raw, 4))
        message.pieces = [raw[:70_000], raw[70_000:]]
        await Unwrapping(FakeClient(), start).run(message, MAX_MESSAGE_SIZE_BYTES)
    assert [message.raw for message in started] == [op_msg.build(2, 0, body), sequence, broken]
    in_body, in_sequence = op_msg.parse(started[0]), op_msg.parse(started[1])
    assert in_body is started[0].parts
    assert in_body.array == [bson.encode(row) for row in rows]
    assert in_sequence.sequences == (("documents", tuple(bson.encode(row) for row in rows)),)
    with pytest.raises(CommandError, match="EOO"):
        op_msg.parse(started[2])
    assert len(rested) > 20
    assert threading.main_thread() not in rested


@pytest.mark.parametrize("wants_reply", [True, False])
async def test_after_the_client_has_left_a_message_goes_on_only_if_it_wants_no_reply(wants_reply: bool) -> None:
    """Whether it does is known when it is unwrapped."""
    inside, client = Inside(wants_reply=wants_reply), FakeClient()
    unwrapping = Unwrapping(client, lambda _: inside)
    assert unwrapping.goes_on_alone()
    await unwrapping.run(Message.from_bytes(compressed(RAW, 2)), MAX_MESSAGE_SIZE_BYTES)
    assert (inside.abandoned, client.closed) == (wants_reply, wants_reply)
    assert unwrapping.goes_on_alone() is not wants_reply


async def test_large_messages_do_not_wait_for_huge_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one client may send many of these."""
    may_end = threading.Event()
    unwrap = op_compressed.unwrap

    def slow(message: Message, max_size_bytes: int, *, rest: Callable[[], None]) -> Message:
        whole = unwrap(message, max_size_bytes, rest=rest)
        if len(whole.raw) > unwrapping_module.HUGE_MESSAGE_BYTES:
            may_end.wait(20)
        return whole

    monkeypatch.setattr(op_compressed, "unwrap", slow)
    huge = op_msg.build(1, 0, bson.encode({"ping": 1, "text": "v" * 3_000_000, "$db": "admin"}))
    started: list[int] = []

    def start(message: Message) -> Inside:
        started.append(len(message.raw))
        return Inside()

    def prepare(raw: bytes) -> asyncio.Task[None]:
        unwrapping = Unwrapping(FakeClient(), start)
        return asyncio.create_task(unwrapping.run(Message.from_bytes(compressed(raw, 2)), MAX_MESSAGE_SIZE_BYTES))

    several = [prepare(huge) for _ in range(3)]
    await prepare(RAW)
    assert started == [len(RAW)]
    may_end.set()
    await asyncio.gather(*several)
    assert started == [len(RAW), *[len(huge)] * 3]


@pytest.mark.parametrize(("size", "huge"), [(1_000_000, False), (3_000_000, True)])
def test_whatis_huge(size: int, *, huge: bool) -> None:
    raw = op_msg.build(1, 0, bson.encode({"ping": 1, "text": "v" * size}))
    whole = Message.from_bytes(raw)
    whole.pieces = [raw[:100], raw[100:]]
    assert unwrapping_module.is_huge(whole) is huge
    assert unwrapping_module.is_huge(Message.from_bytes(compressed(raw, 2))) is huge
