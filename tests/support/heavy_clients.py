"""Clients that ask much of a proxy, each in a process of its own, so that they take no time from who measures.

``python -m tests.support.heavy_clients KIND PORT DATABASE`` goes on until it is ended.
"""

from __future__ import annotations

import itertools
import random
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import bson

from tests.support import raw_wire
from tests.support.raw_wire import RawClient

COLLECTION: Final = "readings"
"""A time-series collection with time field ``t`` and meta field ``m``, which the caller made."""

BEGIN: Final = datetime(2030, 1, 1, tzinfo=UTC)
MORE_TO_COME: Final = 2


def insert(database: str, documents: list[dict[str, Any]] | list[bytes], *, flags: int = 0) -> bytes:
    """The message of an insert into ``COLLECTION``."""
    body = {"insert": COLLECTION, "ordered": False, "$db": database}
    return raw_wire.op_msg_bytes(raw_wire.body(body), raw_wire.sequence("documents", *documents), flags=flags)


def _ask_for_ever(port: int, messages: list[bytes]) -> None:
    with RawClient(port, 120) as client:
        for message in itertools.cycle(messages):
            client.send(message)
            if client.receive() is None:
                return


def _ask_on_many(port: int, messages: list[bytes], connections: int = 32) -> None:
    """Each connection sends its next message as soon as it has the reply to the last one."""
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for number in range(connections):
            client = stack.enter_context(RawClient(port, 120))
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.send(messages[number % len(messages)])
        for message in itertools.cycle(messages):
            for key, _ in selector.select():
                if key.data.receive() is None:
                    return
                key.data.send(message)


def dear(port: int, database: str) -> None:
    """Finds that take long to rewrite, through many connections."""
    chance = random.Random(6)
    arms = [[{"m": f"a{number}", "x": chance.random()} for _ in range(300)] for number in range(50)]
    finds = [{"find": COLLECTION, "filter": {"$or": each}, "limit": 1, "$db": database} for each in arms]
    _ask_on_many(port, [raw_wire.command(each) for each in finds])


def long(port: int, database: str) -> None:
    """Pings of 130 KB through many connections."""
    _ask_on_many(port, [raw_wire.command({"ping": 1, "comment": "v" * 130_000, "$db": "admin"})])


def scattered(port: int, database: str) -> None:
    """5,000 rows at random times of a day into 5,000 series."""
    chance = random.Random(5)
    messages = []
    for _ in range(12):
        rows = [
            {"t": BEGIN + timedelta(seconds=chance.randrange(86_400)), "m": chance.randrange(5_000), "x": row}
            for row in range(5_000)
        ]
        messages.append(insert(database, rows))
    _ask_for_ever(port, messages)


def batches(port: int, database: str) -> None:
    """100,000 documents in each command."""
    messages = []
    for start in range(2):
        rows = [{"t": BEGIN + timedelta(seconds=row), "m": start, "x": row, "y": 0.5} for row in range(100_000)]
        messages.append(insert(database, rows))
    _ask_for_ever(port, messages)


def folded(port: int, database: str) -> None:
    """100,000 documents in each command, all of them in its body."""
    rows = [{"t": BEGIN + timedelta(seconds=row), "m": 0, "x": row} for row in range(100_000)]
    body = {"insert": COLLECTION, "ordered": False, "documents": rows, "$db": database}
    _ask_for_ever(port, [raw_wire.command(body)])


def large(port: int, database: str) -> None:
    """Commands of nearly 48 MB, in documents of 11 MB with many fields."""
    row = {"t": BEGIN, "m": "large", **{f"field{number}": "v" * 100 for number in range(95_000)}}
    document = bson.encode(row)
    _ask_for_ever(port, [insert(database, [document] * (47_000_000 // len(document)))])


def squeezed(port: int, database: str) -> None:
    """Commands of nearly 48 MB, compressed to next to nothing."""
    rows = [{"t": BEGIN, "m": "squeezed", "text": "v" * 10_000_000}] * 4
    _ask_for_ever(port, [raw_wire.compressed(insert(database, rows), compressor) for compressor in (2, 3, 1)])


def deletes(port: int, database: str) -> None:
    """Deletes of tens of thousands of measurements, a part of each bucket."""
    rows = [
        {"t": BEGIN + timedelta(seconds=row // 50), "m": f"doomed{row % 50}", "x": row % 2, "y": row, "z": "v" * 20}
        for row in range(50_000)
    ]
    store = insert(database, rows)
    delete = {"delete": COLLECTION, "deletes": [{"q": {"x": 1}, "limit": 0}], "$db": database}
    rest = {"delete": COLLECTION, "deletes": [{"q": {"z": "v" * 20}, "limit": 0}], "$db": database}
    _ask_for_ever(port, [store, raw_wire.command(delete), raw_wire.command(rest)])


def _pour(port: int, data: bytes) -> None:
    with RawClient(port, 120) as client:
        client.run({"ping": 1, "$db": "admin"})
        while True:
            client.send(data)


def flood(port: int, database: str) -> None:
    """Pings that want no reply, as many as go through the line."""
    _pour(port, raw_wire.command({"ping": 1, "$db": "admin"}, flags=MORE_TO_COME) * 4_000)


def small(port: int, database: str) -> None:
    """Thousands of small commands in each segment, whose replies are read and thrown away."""
    block = raw_wire.command({"hello": 1, "$db": "admin"}) * 3_000
    with RawClient(port, 120) as client:
        expected = len(raw_wire.command(client.run({"hello": 1, "$db": "admin"}))) * 3_000 * 9 // 10
        while True:
            client.send(block)
            received = 0
            while received < expected:
                received += len(client.socket.recv(1 << 20))


def comings(port: int, database: str) -> None:
    """Connections that open, say hello and close, a hundred at a time."""
    hello = raw_wire.command({"hello": 1, "$db": "admin"})
    while True:
        sockets = []
        for _ in range(100):
            one = socket.create_connection(("127.0.0.1", port), timeout=60)
            one.sendall(hello)
            sockets.append(one)
        for one in sockets:
            one.recv(1 << 16)
            one.close()


KINDS: Final[dict[str, Callable[[int, str], None]]] = {
    kind.__name__: kind
    for kind in (scattered, batches, folded, large, squeezed, deletes, flood, small, comings, dear, long)
}


@contextmanager
def at_work(kind: str, port: int, database: str) -> Iterator[None]:
    """A client of this kind."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.heavy_clients", kind, str(port), database], stderr=subprocess.PIPE
    )
    try:
        yield
        assert process.poll() is None, f"{kind} ended: {(process.stderr.read() if process.stderr else b'').decode()}"
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    KINDS[sys.argv[1]](int(sys.argv[2]), sys.argv[3])
