"""Broken, odd and well-formed bytes to mongod and to the proxy in front of it.

The same answers, the same connections closed, and nobody else disturbed.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import bson
import pytest
from bson import Int64, ObjectId

from proxy.wire import op_msg
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.raw_wire import (
    RawClient,
    body,
    command,
    compressed,
    conversation,
    document_of,
    framed,
    op_msg_bytes,
    query,
    sequence,
    with_checksum,
)

PING = {"ping": 1, "$db": "admin"}
GOOD = bson.encode(PING)
INSERT = {"insert": "c", "$db": "hostile"}
DOCUMENT = {"a": 1}
RAW_PING = command(PING)
HELLO = command({"hello": 1, "compression": ["snappy", "zlib", "zstd"], "$db": "admin"})
BSON = bson.encode


def nested(depth: int) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for _ in range(depth):
        document = {"a": document}
    return document


CLIENT = {"driver": {"name": "d", "version": "1"}, "os": {"type": "Linux"}, "application": {"name": "x"}}
CASES: dict[str, bytes] = {
    "ping": RAW_PING,
    "length 15": framed(2013, GOOD, length=15),
    "length 0": framed(2013, GOOD, length=0),
    "length negative": framed(2013, GOOD, length=-1),
    "length over the maximum": framed(2013, b"", length=48_000_001),
    "nothing but a header": framed(2013, b""),
    "nothing but flags": op_msg_bytes(),
    "unknown opcode": framed(9999, b"abcd"),
    "a reply": framed(1, bytes(20) + GOOD),
    "OP_UPDATE": framed(2001, b"\0\0\0\0a.b\0\0\0\0\0" + GOOD + GOOD),
    "OP_INSERT": framed(2002, b"\0\0\0\0a.b\0" + GOOD),
    "OP_GET_MORE": framed(2005, b"\0\0\0\0a.b\0" + bytes(12)),
    "OP_DELETE": framed(2006, b"\0\0\0\0a.b\0\0\0\0\0" + GOOD),
    "OP_KILL_CURSORS": framed(2007, bytes(8)),
    "OP_COMMAND": framed(2010, b"admin\0ping\0" + GOOD + GOOD),
    "query ping": query({"ping": 1}),
    "query insert": query({"insert": "c", "documents": [{}]}, "hostile.$cmd"),
    "query isMaster": query({"isMaster": 1}),
    "query ismaster helloOk": query({"ismaster": 1, "helloOk": True}),
    "query hello": query({"hello": 1}),
    "query isMaster for one": query({"isMaster": 1}, number_to_return=1),
    "query isMaster for none": query({"isMaster": 1}, number_to_return=0),
    "query isMaster wrapped": query({"$query": {"isMaster": 1}, "$readPreference": {"mode": "primary"}}),
    "query isMaster elsewhere": query({"isMaster": 1}, "test.$cmd"),
    "query connectionStatus": query({"connectionStatus": 1}),
    "query collection": query({"x": 1}, "a.b"),
    "query cut off": query(GOOD[:-3]),
    "query with a tail": query(BSON({"isMaster": 1}) + b"zz"),
    "required flag 2": op_msg_bytes(body(PING), flags=4),
    "required flag 15": op_msg_bytes(body(PING), flags=1 << 15),
    "optional flag 20": op_msg_bytes(body(PING), flags=1 << 20),
    "exhaustAllowed": op_msg_bytes(body(PING), flags=1 << 16),
    "moreToCome": op_msg_bytes(body(PING), flags=2),
    "moreToCome with an error": op_msg_bytes(body({"insert": 5, "$db": "a"}), flags=2),
    "moreToCome with two bodies": op_msg_bytes(body(PING), body(PING), flags=2),
    "two bodies": op_msg_bytes(body(PING), body(PING)),
    "no body": op_msg_bytes(sequence("documents", DOCUMENT)),
    "a sequence twice": op_msg_bytes(body(INSERT), sequence("documents", DOCUMENT), sequence("documents", DOCUMENT)),
    "sequence and field": op_msg_bytes(body({**INSERT, "documents": [DOCUMENT]}), sequence("documents", DOCUMENT)),
    "security token": op_msg_bytes(body(PING), b"\x02" + GOOD),
    "section kind 3": op_msg_bytes(b"\x03" + GOOD),
    "sequence before body": op_msg_bytes(sequence("documents", DOCUMENT), body(INSERT)),
    "empty sequence": op_msg_bytes(body(INSERT), sequence("documents")),
    "sequence too long": op_msg_bytes(body(INSERT), sequence("documents", DOCUMENT, size=400)),
    "sequence too short": op_msg_bytes(body(INSERT), sequence("documents", DOCUMENT, size=20)),
    "sequence of 3": op_msg_bytes(body(INSERT), sequence("documents", DOCUMENT, size=3)),
    "sequence negative": op_msg_bytes(body(INSERT), sequence("documents", DOCUMENT, size=-1)),
    "sequence name without end": op_msg_bytes(body(INSERT), b"\x01" + struct.pack("<i", 8) + b"abcd"),
    "sequence with bad BSON": op_msg_bytes(body(INSERT), sequence("documents", b"\x08\0\0\0\x01a\0\0")),
    "sequence nobody wants": op_msg_bytes(body(PING), sequence("foo", DOCUMENT)),
    "sequence with a path": op_msg_bytes(body(INSERT), sequence("a.documents", DOCUMENT)),
    "BSON too long": op_msg_bytes(b"\0" + struct.pack("<i", len(GOOD) + 5) + GOOD[4:]),
    "BSON too short": op_msg_bytes(b"\0" + struct.pack("<i", len(GOOD) - 5) + GOOD[4:]),
    "BSON of 4": op_msg_bytes(b"\0" + struct.pack("<i", 4) + GOOD[4:]),
    "BSON negative": op_msg_bytes(b"\0" + struct.pack("<i", -1) + GOOD[4:]),
    "BSON without end": op_msg_bytes(b"\0" + GOOD[:-1] + b"\x01"),
    "BSON of unknown type": op_msg_bytes(b"\0\x0c\0\0\0\x99x\0\0\0\0\0\0"),
    "BSON with bad UTF-8": op_msg_bytes(body(BSON({**PING, "x": "ab"}).replace(b"ab", b"\xff\xfe"))),
    "trailing byte": op_msg_bytes(body(PING), b"\0"),
    "trailing bytes": op_msg_bytes(body(PING), b"\0\0\0"),
    "good checksum": with_checksum(RAW_PING),
    "good checksum, error": with_checksum(op_msg_bytes(body(PING), body(PING))),
    "bad checksum": with_checksum(RAW_PING)[:-1] + b"\0",
    "checksum without room": op_msg_bytes(flags=1),
    "no database": command({"ping": 1}),
    "database of another type": command({"ping": 1, "$db": 5}),
    "database with a space": command({"ping": 1, "$db": "a b"}),
    "database with a dot": command({"ping": 1, "$db": "a.b"}),
    "database empty": command({"ping": 1, "$db": ""}),
    "database too long": command({"ping": 1, "$db": "a" * 64}),
    "database with NUL": command({"ping": 1, "$db": "a\0b"}),
    "no command": command({}),
    "unknown command": command({"nope": 1, "$db": "a"}),
    "database first": command({"$db": "a", "ping": 1}),
    "insert without documents": command(INSERT),
    "insert into a number": command({"insert": 5, "documents": [{}], "$db": "a"}),
    "insert into nothing": command({"insert": "", "documents": [{}], "$db": "a"}),
    "an answer to something": op_msg_bytes(body(PING), response_to=99),
    "deep nesting": command({"find": "c", "filter": nested(190), "$db": "hostile"}),
    "noop compressor": HELLO + compressed(RAW_PING, 0),
    "unknown compressor": HELLO + compressed(RAW_PING, 9, squeezed=RAW_PING[16:]),
    "compressed": HELLO + compressed(RAW_PING, 2),
    "compressed, not agreed on": compressed(RAW_PING, 2),
    "compressed, announced too small": HELLO + compressed(RAW_PING, 2, size=len(RAW_PING) - 20),
    "compressed, announced too large": HELLO + compressed(RAW_PING, 2, size=len(RAW_PING) + 20),
    "compressed, announced negative": HELLO + compressed(RAW_PING, 2, size=-1),
    "compressed, announced over the maximum": HELLO + compressed(RAW_PING, 2, size=50_000_000),
    "compressed garbage": HELLO + compressed(RAW_PING, 2, squeezed=b"garbage!"),
    "compressed cut off": HELLO + compressed(RAW_PING, 2, squeezed=zlib.compress(RAW_PING[16:])[:-5]),
    "compressed twice": HELLO + compressed(compressed(RAW_PING, 2), 2),
    "compressed without a head": framed(2012, b"\0\0\0"),
    "compressed query": HELLO + compressed(query({"isMaster": 1}), 2),
    "hello twice with client": command({"hello": 1, "client": CLIENT, "$db": "admin"}) * 2,
    "hello, client of another type": command({"hello": 1, "client": 5, "$db": "admin"}),
    "hello, compression of another type": command({"hello": 1, "compression": "zlib", "$db": "admin"}),
    "hello, unknown compressors": command({"hello": 1, "compression": ["foo", "zlib"], "$db": "admin"}),
    "hello elsewhere": command({"hello": 1, "$db": "test"}),
    "hello with an API version": command({"hello": 1, "apiVersion": "1", "$db": "admin"}),
    "hello with a wrong API version": command({"hello": 1, "apiVersion": "2", "$db": "admin"}),
    "isMaster, strict API": command({"isMaster": 1, "apiVersion": "1", "apiStrict": True, "$db": "admin"}),
    "isMaster in other letters": command({"IsMaster": 1, "$db": "admin"}),
    "hello waits without a version": command({"hello": 1, "maxAwaitTimeMS": Int64(9), "$db": "admin"}),
    "hello has a version and does not wait": command(
        {"hello": 1, "topologyVersion": {"processId": ObjectId(), "counter": Int64(0)}, "$db": "admin"}
    ),
    "hello waits with an old version": command(
        {
            "hello": 1,
            "topologyVersion": {"processId": ObjectId(), "counter": Int64(0)},
            "maxAwaitTimeMS": Int64(20_000),
            "$db": "admin",
        }
    ),
    "hello waits a negative time": command(
        {
            "hello": 1,
            "topologyVersion": {"processId": ObjectId(), "counter": Int64(0)},
            "maxAwaitTimeMS": Int64(-1),
            "$db": "admin",
        }
    ),
    "hello exhausts without a time": command({"hello": 1, "$db": "admin"}, flags=1 << 16),
}
CUT_OFF = {
    "a header cut off": RAW_PING[:10],
    "a body cut off": RAW_PING[:-5],
    "a long body": framed(2013, b"", length=48_000_000),
}

STRICTER = {
    "compressed, announced too large": "6.0.5 goes on with what happens to stand in its buffer behind the content",
    "compressed twice": "6.0.5 takes the inner message for one without an answer",
}
"""Where the proxy closes the connection and 6.0.5 does not, and why."""

MASKED = ("localTime", "connectionId", "topologyVersion", "processId")
WORDED_BY_US = ("wrong type",)
"""Texts in which the server names types or positions that we do not."""


def comparable(message: Any) -> tuple[Any, ...]:
    document = {key: value for key, value in document_of(message).items() if key not in MASKED}
    if any(words in document.get("errmsg", "") for words in WORDED_BY_US) or document.get("code") == 22:
        document["errmsg"] = ""
    # Small replies are not worth compressing.
    opcode = "compressible" if message.opcode in (2012, 2013) else message.opcode
    # Where the compression stands among the fields of hello differs between releases.
    return opcode, message.response_to, sorted(document.items(), key=lambda item: item[0] == "compression")


@pytest.mark.parametrize("name", CASES)
def test_proxy_answers_as_mongod(mongod: MongodProcess, proxy: ProxyProcess, name: str) -> None:
    expected, closed = conversation(mongod.port, CASES[name])
    replies, closed_by_proxy = conversation(proxy.port, CASES[name])
    if name in STRICTER:
        assert closed_by_proxy
        assert not closed
        return
    assert [comparable(reply) for reply in replies] == [comparable(reply) for reply in expected]
    assert closed_by_proxy == closed


@pytest.mark.parametrize("name", CUT_OFF)
def test_message_that_never_ends_is_dropped_with_its_connection(
    mongod: MongodProcess, proxy: ProxyProcess, name: str
) -> None:
    assert conversation(proxy.port, CUT_OFF[name], then_ping=False) == ([], True)
    assert conversation(mongod.port, CUT_OFF[name], then_ping=False) == ([], True)


def test_flags_of_replies_say_whether_they_are_summed(proxy: ProxyProcess) -> None:
    for data in (with_checksum(RAW_PING), with_checksum(op_msg_bytes(body(PING), body(PING)))):
        replies, _ = conversation(proxy.port, data)
        assert op_msg.parse(replies[0]).flags == op_msg.CHECKSUM_PRESENT


def test_others_go_on_while_one_breaks_the_protocol(proxy: ProxyProcess) -> None:
    with RawClient(proxy.port) as other:
        assert other.run(PING)["ok"] == 1.0
        for data in CASES.values():
            with RawClient(proxy.port) as broken:
                broken.send(data)
            assert other.run(PING)["ok"] == 1.0


def test_http_and_tls_are_turned_away(proxy: ProxyProcess) -> None:
    tls = bytes.fromhex("16030102000100 01fc0303") + bytes(100)
    for data, answer in ((b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.0 200 OK"), (tls, b"")):
        with RawClient(proxy.port) as client:
            client.send(data)
            assert client.socket.recv(1000)[:15] == answer
