"""Messages whose form the proxy knows by heart, with every length in them wrong.

Whoever sends them hears of a mistake of theirs, never of one of the proxy's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from bson import Int64
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS

from proxy.wire.op_msg import BODY_AT
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.raw_wire import RawClient, body, command, op_msg_bytes, sequence

LENGTHS = (0, -1, -5, -(2**31), 1, 4, 2**31 - 1)
LSID = {"id": Binary(bytes(range(16)), 4)}


def messages(database: str) -> dict[str, bytes]:
    session: dict[str, Any] = {"lsid": LSID, "$db": database}
    measurement = {"t": DatetimeMS(1_700_000_000_000), "m": "a", "v": 1}
    return {
        "insert of a measurement": op_msg_bytes(body({"insert": "ts", **session}), sequence("documents", measurement)),
        "retryable insert": op_msg_bytes(
            body({"insert": "ts", "txnNumber": Int64(1), **session}), sequence("documents", measurement)
        ),
        "read of measurements": command({"find": "ts", "filter": {"m": "none"}, **session}),
        "relayed read": command({"find": "plain", "filter": {}, **session}),
        "getMore": command({"getMore": Int64(77), "collection": "ts", **session}),
        "explain": command({"explain": {"find": "ts", "filter": {}}, **session}),
        "delete": command({"delete": "ts", "deletes": [{"q": {"m": "none"}, "limit": 0}], **session}),
        "rename": command({"renameCollection": f"{database}.none", "to": f"{database}.other", "$db": "admin"}),
        "hello": command({"hello": 1, "compression": ["zlib"], "$db": database}),
    }


def damaged(raw: bytes) -> Iterator[bytes]:
    """With each four bytes of the sections replaced by each of the lengths."""
    for at in range(BODY_AT, len(raw) - 4):
        for length in LENGTHS:
            yield raw[:at] + struct.pack("<i", length) + raw[at + 4 :]


class Line:
    """A connection that is made anew when the peer has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._client = RawClient(port)

    def answer(self, data: bytes) -> bytes | None:
        """The raw reply; ``None`` when the connection was closed instead."""
        self._client.send(data)
        reply = self._client.receive()
        if reply is None:
            self.close()
            self._client = RawClient(self._port)
        return None if reply is None else reply.raw

    def close(self) -> None:
        self._client.socket.close()


KINDS = sorted(messages(""))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MongodProcess, ProxyProcess]]:
    """Servers of their own: what they make of damaged inserts are databases whose names other tests could not read."""
    backend = MongodProcess(tmp_path_factory.mktemp("lengths"))
    try:
        backend.start()
        proxy = ProxyProcess(tmp_path_factory.mktemp("lengths_proxy"), backend.uri)
        try:
            yield backend, proxy.start()
        finally:
            proxy.stop()
    finally:
        backend.remove()


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_lengths_are_the_clients_mistake(pair: tuple[MongodProcess, ProxyProcess], kind: str) -> None:
    mongod, proxy = pair
    database = f"lengths_{KINDS.index(kind)}"
    raw = messages(database)[kind]
    line, native = Line(proxy.port), Line(mongod.port)
    try:
        line.answer(command({"create": "ts", "timeseries": {"timeField": "t", "metaField": "m"}, "$db": database}))
        for _ in range(3):
            # From now on it is recognised.
            assert line.answer(raw) is not None
        for sent in damaged(raw):
            reply, expected = line.answer(sent), native.answer(sent)
            assert (reply is None) == (expected is None), sent.hex()
            assert b"internal error" not in (reply or b""), sent.hex()
    finally:
        line.close()
        native.close()
