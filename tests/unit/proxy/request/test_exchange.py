from __future__ import annotations

import math
import time
from typing import Any

import bson
import pytest
from bson import Int64

from catalog.errors import BackendUnavailable, CommandError
from catalog.identity import NOBODY, Identity, identity_of
from proxy.request.command import parse_command
from proxy.request.exchange import Exchange, encode, labelled
from proxy.wire import op_compressed, op_msg
from proxy.wire.message import Message, Opcode
from tests.support.exchanges import Told
from tests.support.network import FakeClient
from tests.support.raw_wire import command, compressed, document_of, query, with_checksum
from tests.support.sessions import session


def exchange(raw: bytes, *, identity: Identity = NOBODY) -> tuple[Exchange, FakeClient]:
    message = Message.from_bytes(raw)
    if message.opcode == Opcode.COMPRESSED:
        message = op_compressed.unwrap(message, 48_000_000)
    client = FakeClient()
    return Exchange(session(identity), client, message, Told()), client


PING = command({"ping": 1, "$db": "admin"}, request_id=41)


def test_reply_answers_the_request_in_its_own_kind() -> None:
    for raw, opcode in ((PING, Opcode.MSG), (query({"isMaster": 1}), Opcode.REPLY)):
        one, client = exchange(raw)
        one.reply(encode({"ok": 1.0}))
        (written,) = client.written
        reply = Message.from_bytes(written)
        assert (reply.opcode, reply.response_to) == (opcode, Message.from_bytes(raw).request_id)
        assert document_of(reply) == {"ok": 1.0}
        assert client.finished == 1


def test_reply_to_a_compressed_request_is_compressed_with_the_same() -> None:
    for compressor in (1, 2, 3):
        one, client = exchange(compressed(PING, compressor))
        one.reply(encode({"x": "y" * 1000, "ok": 1.0}))
        reply = Message.from_bytes(client.written[0])
        assert reply.opcode == Opcode.COMPRESSED
        assert op_compressed.unwrap(reply, 48_000_000).compressor == compressor


def test_reply_to_a_summed_request_is_summed() -> None:
    one, client = exchange(with_checksum(PING))
    one.reply(encode({"ok": 1.0}))
    assert op_msg.parse(Message.from_bytes(client.written[0])).flags == op_msg.CHECKSUM_PRESENT


def test_unacknowledged_request_gets_nothing() -> None:
    one, client = exchange(command({"ping": 1, "$db": "admin"}, flags=op_msg.MORE_TO_COME))
    one.refuse(CommandError(2, "x"))
    assert (client.written, client.finished) == ([], 1)


def test_a_client_sends_the_next_command_after_the_answer() -> None:
    one, _ = exchange(PING)
    before_seconds = time.perf_counter()
    one.reply(encode({"ok": 1.0}))
    assert before_seconds <= one.session.answered_seconds <= time.perf_counter()
    for unanswered, _ in (exchange(command({"ping": 1, "$db": "admin"}, flags=op_msg.MORE_TO_COME)), exchange(PING)):
        if unanswered.expects_reply:
            unanswered.close()
        else:
            unanswered.reply(None)
        assert unanswered.session.answered_seconds == -math.inf


def test_relayed_stream_to_a_compressing_client_is_collected() -> None:
    one, client = exchange(compressed(PING, 2))
    raw = op_msg.build(5, 41, bson.encode({"x": "y" * 2000}))
    one.write(raw[:100])
    one.write(raw[100:] + raw)
    assert client.written == []
    one.done()
    assert [op_compressed.unwrap(Message.from_bytes(one), 10_000).raw for one in client.written] == [raw, raw]


def test_lost_backend_is_an_error_reply_when_nothing_else_was_lost() -> None:
    one, client = exchange(PING)
    one.failed(BackendUnavailable("backend:1 is gone"), partly_sent=False)
    reply = document_of(Message.from_bytes(client.written[0]))
    assert (reply["code"], reply["errmsg"], client.closed) == (6, "backend:1 is gone", False)


@pytest.mark.parametrize(("identity", "partly_sent"), [(identity_of([("u", "admin")]), False), (NOBODY, True)])
def test_lost_login_or_half_a_reply_closes_the_connection(identity: Identity, partly_sent: bool) -> None:
    one, client = exchange(PING, identity=identity)
    one.failed(BackendUnavailable("gone"), partly_sent=partly_sent)
    assert (client.written, client.closed) == ([], True)


@pytest.mark.parametrize(
    ("fields", "labels"),
    [
        ({"find": "c"}, ()),
        ({"insert": "c", "txnNumber": Int64(1)}, ("RetryableWriteError",)),
        ({"insert": "c", "txnNumber": Int64(1), "autocommit": False}, ("TransientTransactionError",)),
        ({"commitTransaction": 1, "txnNumber": Int64(1), "autocommit": False}, ("RetryableWriteError",)),
    ],
)
def test_labels_make_drivers_retry_what_may_be_retried(fields: dict[str, Any], labels: tuple[str, ...]) -> None:
    parsed = parse_command(Message.from_bytes(command({**fields, "$db": "d"})))
    assert labelled(BackendUnavailable("gone"), parsed).labels == labels


def test_end_is_told_once() -> None:
    one, client = exchange(PING)
    one.refuse(CommandError(2, "x"))
    assert client.finished == 1
    left: list[str] = []
    one.on_abandon = lambda: left.append("left")
    one.abandon()
    one.abandon()
    assert left == ["left"]


@pytest.mark.parametrize("raw", [PING, with_checksum(PING), compressed(PING, 2)])
def test_a_large_reply_is_one_message_all_the_same(raw: bytes) -> None:
    one, client = exchange(raw)
    document = encode({"cursor": {"nextBatch": ["x" * 100_000]}, "ok": 1.0})
    one.reply(document)
    reply = Message.from_bytes(b"".join(client.written))
    if reply.opcode == Opcode.COMPRESSED:
        reply = op_compressed.unwrap(reply, 48_000_000)
    assert reply.response_to == 41
    assert op_msg.parse(reply).body == document
