"""Valid commands of a client that has logged in and wants to stop all others; each works on its own database only."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import bson
from bson import Int64, ObjectId

from tests.fuzz.doors import Caller, Door, raw_message
from tests.fuzz.honest import DATABASE as HONEST
from tests.fuzz.honest import SESSION, START

MALLORY = "mallory"
MORE_TO_COME, EXHAUST_ALLOWED = 2, 1 << 16
PATIENCE_SECONDS = 60.0


def _command(document: dict[str, Any], *, flags: int = 0) -> bytes:
    return raw_message({**document, "$db": document.get("$db", MALLORY)}, flags=flags)


def _row(**more: Any) -> dict[str, Any]:
    return {"t": START, "m": "m", "_id": ObjectId(), **more}


# --- prepared messages -----------------------------------------------------------------------------------------------


def _deep_filter(depth: int, arms: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"$or": [{"v": number} for number in range(arms)]}
    for _ in range(depth):
        inner = {"$or": [inner]}
    return inner


@cache
def _large_reads() -> tuple[bytes, ...]:
    deep = _deep_filter(60, 100_000)
    many = {"v": {"$in": list(range(400_000))}}
    wide = {f"field{number}": 1 for number in range(60_000)}
    dotted = {".".join(["a"] * 90) + str(number): 1 for number in range(3000)}
    negations: dict[str, Any] = {"t": {"$gt": START}}
    for _ in range(80):
        negations = {"$nor": [negations, {"m.a": {"$ne": 1}}]}
    stages = [{"$match": {"v": number}} for number in range(900)]
    return (
        _command({"find": "ts", "filter": deep}),
        _command({"count": "ts", "query": deep}),
        _command({"distinct": "ts", "key": "v", "query": deep}),
        _command({"delete": "ts", "deletes": [{"q": deep, "limit": 0}]}),
        _command({"aggregate": "ts", "pipeline": [{"$match": deep}], "cursor": {}}),
        _command({"explain": {"find": "ts", "filter": deep}, "verbosity": "queryPlanner"}),
        _command({"find": "ts", "filter": _deep_filter(3, 20_000)}),
        _command({"find": "ts", "filter": many}),
        _command({"find": "ts", "filter": {"m": {"$in": list(range(400_000))}}}),
        _command({"find": "ts", "projection": wide}),
        _command({"find": "ts", "projection": dotted}),
        _command({"find": "ts", "sort": dict.fromkeys([f"s{number}" for number in range(31)], 1)}),
        _command({"find": "ts", "filter": negations}),
        _command({"aggregate": "ts", "pipeline": stages, "cursor": {}}),
        _command({"aggregate": "ts", "pipeline": [{"$project": wide}], "cursor": {}}),
        _command(
            {
                "aggregate": "ts",
                "pipeline": [{"$group": {"_id": "$m", **{f"f{n}": {"$max": f"$x{n}"} for n in range(5000)}}}],
                "cursor": {},
            }
        ),
        _command({"find": "ts", "comment": "c" * 5_000_000}),
        # More variables cost a server minutes that nothing interrupts.
        _command({"find": "ts", "let": {f"v{number}": number for number in range(5_000)}}),
    )


@cache
def _large_writes() -> tuple[bytes, ...]:
    # Wider rows keep a server busy for minutes, in which nothing interrupts it, however they come to it.
    wide_row = bson.encode(_row(**{f"field{number}": number for number in range(10_000)}))
    huge = bson.encode(_row(blob=bytes(16_000_000)))
    nested = _row(value={f"k{number}": {f"l{inner}": inner for inner in range(30)} for number in range(150)})
    deep: dict[str, Any] = {}
    for _ in range(90):
        deep = {"a": deep, "b": 1}
    small = [bson.encode(_row(v=number)) for number in range(20_000)]
    names = [bson.encode(_row(**{f"unique{number}": 1})) for number in range(5000)]
    insert = bson.encode({"insert": "ts", "$db": MALLORY})
    return (
        raw_message(insert, sequence=("documents", [wide_row])),
        raw_message(insert, sequence=("documents", [huge])),
        raw_message(insert, sequence=("documents", [bson.encode(nested)] * 4)),
        raw_message(insert, sequence=("documents", [bson.encode(_row(d=deep))] * 300)),
        raw_message(insert, sequence=("documents", small)),
        raw_message(insert, sequence=("documents", names)),
        raw_message(insert, sequence=("documents", [bson.encode({**_row(), "m": {"k": "x" * 2_000_000}})] * 5)),
        raw_message(
            bson.encode({"insert": "ts", "comment": "c" * 5_000_000, "$db": MALLORY}), sequence=("documents", small[:1])
        ),
        raw_message(
            bson.encode({"insert": "ts", "autocommit": False, "txnNumber": Int64(1), "$db": MALLORY}),
            sequence=("documents", small[:10]),
        ),
        _command(
            {
                "update": "ts",
                "updates": [{"q": {"m": number}, "u": {"$set": {"m": 1}}, "multi": True} for number in range(2000)],
            }
        ),
        _command({"delete": "ts", "deletes": [{"q": {"v": number}, "limit": 0} for number in range(300)]}),
        _command({"update": "ts", "updates": [{"q": {"v": 1}, "u": {"$set": {"v": 2}}}]}),
    )


def prepare() -> None:
    """Make the large messages before they are needed; see ``tests.fuzz.stranger.prepare``."""
    _large_reads()
    _large_writes()


def _ask_one_of(prepared: Callable[[], tuple[bytes, ...]]) -> Callable[[Door, random.Random], None]:
    def ask(door: Door, chance: random.Random) -> None:
        with door.enter(PATIENCE_SECONDS) as caller:
            caller.ask(chance.choice(prepared()))

    ask.__name__ = prepared.__name__.strip("_")
    return ask


def names_of_megabytes(door: Door, chance: random.Random) -> None:
    """Unknown commands, collections, fields, applications and sessions with long or ever new names."""
    long = f"{chance.random()}" + "n" * chance.choice((60_000, 900_000))
    with door.enter(PATIENCE_SECONDS) as caller:
        for document in (
            {long: 1},
            {"find": long},
            {"insert": long, "documents": [_row()]},
            {"insert": "ts", "documents": [_row(**{long: 1})]},
            {"hello": 1, "client": {"application": {"name": long}}},
            {"insert": "ts", "documents": [_row()], "writeConcern": {"w": long}},
            {"listCollections": 1, "filter": {"name": long}},
        ):
            caller.ask(_command(document))


def waits_for_members(door: Door, chance: random.Random) -> None:
    """Writes that wait for more members than there are, all at once; then their connections are dropped."""
    with door.several(24) as callers:
        for caller in callers:
            concern = {"w": 2, "wtimeout": 600_000}
            caller.send(_command({"insert": "ts", "documents": [_row(w=1)], "writeConcern": concern}))
        time.sleep(chance.random() * 4)


def ping_flood(door: Door, chance: random.Random) -> None:
    """Many small commands that ask for no reply, as fast as they are taken."""
    find = {"find": "ts", "singleBatch": True}
    ping = _command(chance.choice(({"ping": 1}, {"nonsense": 1}, find)), flags=MORE_TO_COME)
    with door.enter(PATIENCE_SECONDS) as caller:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            caller.socket.sendall(ping * 2000)


def cursors_by_the_million(door: Door, chance: random.Random) -> None:
    ids = [Int64(chance.getrandbits(60)) for _ in range(2000)]
    with door.enter(PATIENCE_SECONDS) as caller:
        caller.ask(_command({"killCursors": "ts", "cursors": ids * 500}))
        for each in ids[:200]:
            caller.ask(_command({"getMore": each, "collection": "ts"}))
        caller.ask(_command({"killSessions": [{"id": bson.Binary(each.to_bytes(16, "big"), 4)} for each in ids]}))


def cursors_left_open(door: Door, chance: random.Random) -> None:
    """Few: each holds a bucket in the server's memory, up to 16 MB, however a client comes to it."""
    with door.enter(PATIENCE_SECONDS) as caller:
        for _ in range(40):
            caller.ask(_command({"find": "ts", "batchSize": 1}))


def unread_stream(door: Door, chance: random.Random) -> None:
    """Asks for a stream of hellos, or many large answers, and reads nothing."""
    with door.several(10) as callers:
        for caller in callers:
            topology = bson.decode(caller.ask(_command({"hello": 1, "$db": "admin"}))).get("topologyVersion")
            caller.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stream = {"hello": 1, "topologyVersion": topology, "maxAwaitTimeMS": 1, "$db": "admin"}
            caller.send(_command(stream, flags=EXHAUST_ALLOWED))
            for _ in range(50):
                caller.send(_command({"find": "ts", "batchSize": 1000}))
        time.sleep(1 + chance.random() * 3)


def slow_reader(door: Door, chance: random.Random) -> None:
    with door.enter(PATIENCE_SECONDS) as caller:
        caller.send(_command({"find": "ts", "batchSize": 100_000}))
        end = time.monotonic() + 3
        while time.monotonic() < end and caller.socket.recv(500):
            time.sleep(0.02)


def drops_without_reply(door: Door, chance: random.Random) -> None:
    """Also of what is not theirs, where it must be refused; of what does not exist, where nobody asks for a login."""
    foreign = "ts" if door.guarded else "nothing"
    drops = [
        _command({"drop": foreign, "$db": HONEST}, flags=MORE_TO_COME),
        _command({"drop": "gone"}, flags=MORE_TO_COME),
        _command({"insert": "gone", "documents": [_row()], "ordered": False}, flags=MORE_TO_COME),
    ]
    if door.guarded:
        drops += [
            _command({"dropDatabase": 1, "$db": HONEST}, flags=MORE_TO_COME),
            _command({"collMod": "ts", "expireAfterSeconds": 1, "$db": HONEST}, flags=MORE_TO_COME),
            _command({"delete": "ts", "deletes": [{"q": {}, "limit": 0}], "$db": HONEST}, flags=MORE_TO_COME),
        ]
    with door.enter(PATIENCE_SECONDS) as caller:
        end = time.monotonic() + 2
        while time.monotonic() < end:
            caller.socket.sendall(b"".join(chance.choice(drops) for _ in range(50)))


def collections_come_and_go(door: Door, chance: random.Random) -> None:
    name = f"c{chance.randrange(20)}"
    with door.enter(PATIENCE_SECONDS) as caller:
        caller.ask(_command({"create": name, "timeseries": {"timeField": "t", "metaField": "m"}}))
        caller.ask(_command({"insert": name, "documents": [_row(v=number) for number in range(50)]}))
        caller.ask(_command({"drop": name}))


def sessions_of_others(door: Door, chance: random.Random) -> None:
    """The honest client's session with a number that would end it, and retried removals in it."""
    if not door.guarded:
        return
    session = {"lsid": {"id": SESSION}, "txnNumber": Int64(2**62 + chance.randrange(1000))}
    with door.enter(PATIENCE_SECONDS) as caller:
        caller.ask(_command({"insert": "ts", "documents": [_row()], **session}))
        for _ in range(2):
            caller.ask(_command({"findAndModify": "ts", "query": {"m": "m"}, "remove": True, **session}))
            caller.ask(_command({"delete": "ts", "deletes": [{"q": {"v": 1}, "limit": 1}], **session}))
        caller.ask(_command({"insert": "ts", "documents": [_row()], "$db": HONEST, **session}))


def half_inserts(door: Door, chance: random.Random) -> None:
    """Messages of 40 MB that never end."""
    whole = chance.choice(_large_writes())
    with door.several(5) as callers:
        for caller in callers:
            caller.socket.sendall(struct.pack("<i", 47_000_000) + whole[4 : len(whole) // 2])
        time.sleep(1)


def connections_come_and_go(door: Door, chance: random.Random) -> None:
    for _ in range(20):
        Caller(door.port).close()


COSTLY: tuple[Callable[[Door, random.Random], None], ...] = (
    _ask_one_of(_large_reads),
    _ask_one_of(_large_reads),
    _ask_one_of(_large_writes),
    _ask_one_of(_large_writes),
    names_of_megabytes,
    waits_for_members,
    ping_flood,
    cursors_by_the_million,
    cursors_left_open,
    unread_stream,
    slow_reader,
    drops_without_reply,
    collections_come_and_go,
    sessions_of_others,
    half_inserts,
    connections_come_and_go,
)
