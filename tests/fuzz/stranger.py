"""What a client sends that never logs in: what may be asked before a login, and what must be refused without harm."""

from __future__ import annotations

import contextlib
import random
import struct
import time
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import bson
from bson import Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp

from tests.fuzz import costly
from tests.fuzz.costly import EXHAUST_ALLOWED, MORE_TO_COME, PATIENCE_SECONDS
from tests.fuzz.doors import Door, raw_message
from tests.fuzz.honest import DATABASE as HONEST
from tests.fuzz.honest import START
from tests.fuzz.seeds import OP_MSG

BOMB_BYTES = (900_000, 40_000_000)
ODD_VALUES: tuple[Any, ...] = (
    float("nan"), float("inf"), float("-inf"), -0.0, 1e308, -1, 0, 1, 2**31 - 1, Int64(2**63 - 1), Int64(-(2**63)), "",
    "x" * 1000, None, True, [], [1], {}, {"a": 1}, Decimal128("NaN"), Decimal128("1E+6000"), MinKey(), MaxKey(),
    Regex("a"), ObjectId(), Timestamp(1, 1), b"x", bson.Binary(b"y" * 16, 4), bson.Code("f"),
    bson.Code("f", {"x": 1}), START,
)  # fmt: skip


def odd_hellos(door: Door, chance: random.Random) -> None:
    """Every option of a hello with a value of every type."""
    options = (
        "maxAwaitTimeMS", "topologyVersion", "client", "compression", "saslSupportedMechs", "speculativeAuthenticate",
        "helloOk", "loadBalanced", "internalClient", "hostInfo", "comment", "lsid", "$clusterTime", "$readPreference",
        "$db", "apiVersion", "maxTimeMS",
    )  # fmt: skip
    name = chance.choice(("hello", "isMaster", "ismaster"))
    for _ in range(15):
        with contextlib.suppress(OSError), door.enter(5) as caller:
            document = {
                name: chance.choice(ODD_VALUES),
                "$db": "admin",
                chance.choice(options): chance.choice(ODD_VALUES),
            }
            if chance.random() < 0.3:
                document |= {
                    "topologyVersion": {"processId": ObjectId(), "counter": Int64(0)},
                    "maxAwaitTimeMS": chance.choice(ODD_VALUES),
                }
            raw = raw_message(document, flags=chance.choice((0, 0, EXHAUST_ALLOWED, MORE_TO_COME)))
            if raw[16] & MORE_TO_COME:
                caller.send(raw)
            else:
                caller.socket.settimeout(1)
                caller.ask(raw)


def odd_arguments(door: Door, chance: random.Random) -> None:
    """Commands before the login with a value of every type where a name or an option belongs."""
    names = (
        "ping", "buildInfo", "saslStart", "saslContinue", "authenticate", "logout", "getnonce", "endSessions",
        "killCursors", "getMore", "find", "insert", "drop", "create", "aggregate", "connectionStatus", "whatsmyuri",
        "listDatabases",
    )  # fmt: skip
    if not door.guarded:
        names = names[:6]
    for _ in range(15):
        with contextlib.suppress(OSError), door.enter(5) as caller:
            document = {
                chance.choice(names): chance.choice(ODD_VALUES),
                "$db": chance.choice(("admin", HONEST, "$external")),
            }
            for option in ("mechanism", "payload", "conversationId", "options", "cursors", "collection", "user"):
                if chance.random() < 0.4:
                    document[option] = chance.choice(ODD_VALUES)
            caller.socket.settimeout(2)
            caller.ask(raw_message(document))


def refused_writes(door: Door, chance: random.Random) -> None:
    """Drops and inserts on what honest clients use, which a login would be needed for; nobody waits for the replies."""
    foreign = "ts" if door.guarded else "nothing"
    row = {"t": START, "m": 1, "_id": ObjectId()}
    writes = [raw_message({"drop": foreign, "$db": HONEST}, flags=MORE_TO_COME)]
    if door.guarded:
        writes += [
            raw_message({"dropDatabase": 1, "$db": HONEST}, flags=MORE_TO_COME),
            raw_message({"insert": "ts", "documents": [row], "$db": HONEST}, flags=MORE_TO_COME),
            raw_message({"delete": "ts", "deletes": [{"q": {}, "limit": 0}], "$db": HONEST}, flags=MORE_TO_COME),
            raw_message(
                {"renameCollection": f"{HONEST}.ts", "to": f"{HONEST}.other", "$db": "admin"}, flags=MORE_TO_COME
            ),
        ]
    with door.enter(PATIENCE_SECONDS) as caller:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            caller.socket.sendall(b"".join(chance.choice(writes) for _ in range(50)))


@cache
def _zeros(size_bytes: int) -> bytes:
    return zlib.compress(bytes(size_bytes), 9)


def prepare() -> None:
    """Make what takes long to make before it is needed, so that the attack is not the making of it."""
    costly.prepare()
    _large_handshakes()
    for size_bytes in BOMB_BYTES:
        _zeros(size_bytes)


def bombs(door: Door, chance: random.Random) -> None:
    """Small compressed messages that are large unpacked, or claim to be."""
    content = _zeros(chance.choice(BOMB_BYTES))
    for claimed in (48_000_000, 40_000_000, 900_000, -1, 2**31 - 1):
        body = struct.pack("<iiB", OP_MSG, claimed, 2) + content
        raw = struct.pack("<iiii", 16 + len(body), 1, 0, 2012) + body
        with contextlib.suppress(OSError), door.enter(2) as caller:
            caller.socket.sendall(raw * 3)
            caller.receive()


def login_flood(door: Door, chance: random.Random) -> None:
    """Logins that are begun and left, with names known and unknown."""
    for _ in range(10):
        with contextlib.suppress(OSError), door.enter(10) as caller:
            for _ in range(10):
                user = chance.choice(("honest", "mallory", "nobody", "n" * 10_000))
                payload = f"n,,n={user},r=abc{chance.random()}".encode()
                start = {
                    "saslStart": 1,
                    "mechanism": chance.choice(("SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN", "MONGODB-X509")),
                    "payload": payload,
                }
                raw = raw_message(
                    {**start, "$db": chance.choice(("admin", "honest"))}, flags=chance.choice((0, 0, MORE_TO_COME))
                )
                if raw[16]:
                    caller.send(raw)
                else:
                    caller.ask(raw)


def half_messages(door: Door, chance: random.Random) -> None:
    with door.several(30) as callers:
        for caller in callers:
            size = chance.choice((21, 1000, 1_000_000, 48_000_000))
            caller.socket.sendall(struct.pack("<iiii", size, 1, 0, OP_MSG)[: chance.randrange(1, 17)])
        for _ in range(20):
            for caller in callers:
                with contextlib.suppress(OSError):
                    caller.socket.sendall(b"\0")
            time.sleep(0.05)


def costly_without_login(door: Door, chance: random.Random) -> None:
    """The large commands of a client that would have to log in."""
    with contextlib.suppress(OSError), door.enter(10) as caller:
        caller.ask(chance.choice(costly._large_reads()))


@cache
def _large_handshakes() -> tuple[bytes, ...]:
    """Messages of many small parts."""
    sections = b"".join(b"\1" + struct.pack("<i", 13) + b"%08x\0" % number for number in range(30_000))
    pinged = raw_message({"ping": 1, "$db": "admin"}) + sections
    fields = b"".join(b"\x0a%x\0" % number for number in range(1_000_000))
    document = struct.pack("<i", len(fields) + 5) + fields + b"\0"
    legacy = bytes(4) + b"admin.$cmd\0" + struct.pack("<ii", 0, -1)
    version = b"\x03topologyVersion\0" + document
    hello = bson.encode({"hello": 1, "maxAwaitTimeMS": 1, "$db": "admin"})[4:-1] + version
    empty = bson.encode({})
    return (
        struct.pack("<i", len(pinged)) + pinged[4:],
        struct.pack("<iiii", 16 + len(legacy) + len(document), 1, 0, 2004) + legacy + document,
        raw_message(struct.pack("<i", len(hello) + 5) + hello + b"\0"),
        raw_message({"insert": "x", "$db": "test"}, sequence=("documents", [empty] * 1_000_000)),
    )


def handshakes_of_many_parts(door: Door, chance: random.Random) -> None:
    for _ in range(5):
        with contextlib.suppress(OSError), door.enter(10) as caller:
            caller.ask(chance.choice(_large_handshakes()))


STRANGE: tuple[Callable[[Door, random.Random], None], ...] = (
    odd_hellos,
    odd_arguments,
    refused_writes,
    bombs,
    login_flood,
    half_messages,
    costly_without_login,
    handshakes_of_many_parts,
    costly.ping_flood,
    costly.connections_come_and_go,
    costly.unread_stream,
)
