"""Replies arrive whole or in pieces, and are told once."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, cast

import bson
import pytest

from proxy.backend.service_connection import LostAfterSending, NotSent, ServiceAnswer, ServiceConnection

PING = bson.encode({"ping": 1, "$db": "admin"})
DOCUMENT = bson.encode({"ok": 1.0, "text": "x" * 50})
REPLY = struct.pack("<iiiiIB", 21 + len(DOCUMENT), 1, 1, 2013, 0, 0) + DOCUMENT


class Transport:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closing = False

    def write(self, message: bytes) -> None:
        self.sent.append(message)

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True


class Bench:
    def __init__(self) -> None:
        self.transport = Transport()
        self.connection = ServiceConnection("there")
        self.connection.connection_made(cast(Any, self.transport))
        self.heard: list[ServiceAnswer] = []
        self.connection.send(self.heard.append, PING)


@pytest.mark.parametrize("size", [1, 3, 20, 21, 22, len(REPLY) - 1, len(REPLY)])
def test_a_reply_is_told_once_it_is_complete(size: int) -> None:
    bench = Bench()
    pieces = [REPLY[start : start + size] for start in range(0, len(REPLY), size)]
    for piece in pieces[:-1]:
        bench.connection.data_received(piece)
        assert bench.heard == []
    bench.connection.data_received(pieces[-1])
    assert bench.heard == [DOCUMENT]
    bench.connection.send(bench.heard.append, PING)
    bench.connection.data_received(REPLY)
    assert bench.heard == [DOCUMENT, DOCUMENT]


def test_a_command_with_a_document_sequence() -> None:
    bench = Bench()
    documents = [bson.encode({"_id": number}) for number in range(2)]
    bench.connection.data_received(REPLY)
    bench.connection.send(bench.heard.append, PING, "documents", documents)
    message = bench.transport.sent[-1]
    length, _, _, code, flags, kind = struct.unpack_from("<iiiiIB", message)
    assert (length, code, flags, kind) == (len(message), 2013, 0, 0)
    section = message[21 + len(PING) :]
    assert section[:1] == b"\x01"
    assert int.from_bytes(section[1:5], "little") == len(section) - 1
    assert section[5:] == b"documents\0" + b"".join(documents)


def test_the_end_of_the_connection_is_told() -> None:
    bench = Bench()
    bench.connection.connection_lost(None)
    assert [type(each) for each in bench.heard] == [LostAfterSending]
    with pytest.raises(NotSent):
        bench.connection.send(bench.heard.append, PING)
    assert len(bench.heard) == 1


def test_nothing_is_told_of_what_was_abandoned() -> None:
    bench = Bench()
    bench.connection.abandon()
    assert bench.transport.closing
    bench.connection.data_received(REPLY)
    bench.connection.connection_lost(None)
    assert bench.heard == []


async def test_a_request_that_is_cancelled_ends_the_connection() -> None:
    bench = Bench()
    bench.connection.data_received(REPLY)
    request = asyncio.ensure_future(bench.connection.request(PING))
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert bench.transport.closing
