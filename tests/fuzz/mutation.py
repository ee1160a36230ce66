"""Valid messages, damaged, against a running proxy.

What has to hold whatever is sent: the proxy lives and answers others at once; a reply answers the request that was
just sent and nothing else; nothing is reported as an error of the proxy's own; no database appears or vanishes that
the bytes did not name; memory does not grow with the number of messages.
"""

from __future__ import annotations

import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import crc32c
import pymongo

from tests.fuzz.doors import OUR_OWN_ERRORS, Broken, Door
from tests.fuzz.seeds import CHECKSUM, DATABASE, HEADER, MORE_TO_COME, OP_MSG, seeds
from tests.support.proxy import ProxyProcess

ANSWER_SECONDS = 10.0
OTHERS_SECONDS = 5.0
MESSAGES_PER_CHECK = 400
WATCHED = "untouched"
_OP_MSG_BYTES = struct.pack("<i", OP_MSG)


def mutate(chance: random.Random, raw: bytes) -> bytes:
    """One to three damages; the length in the header is right in most cases, so that more is read than the header."""
    data = bytearray(raw)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        _DAMAGES[chance.randrange(len(_DAMAGES))](chance, data)
    if len(data) >= 16 and chance.random() < 0.9:
        struct.pack_into("<i", data, 0, len(data))
    return bytes(data)


def _at(chance: random.Random, data: bytearray) -> int:
    return chance.randrange(min(16, len(data)), len(data)) if len(data) > 16 else 0


def _flip_bit(chance: random.Random, data: bytearray) -> None:
    if data:
        data[_at(chance, data)] ^= 1 << chance.randrange(8)


def _set_byte(chance: random.Random, data: bytearray) -> None:
    if data:
        data[_at(chance, data)] = chance.choice((0, 1, 2, 3, 4, 0x7F, 0x80, 0xFF, chance.randrange(256)))


def _set_length(chance: random.Random, data: bytearray) -> None:
    if len(data) >= 24:
        values = (0, 1, 4, 5, -1, 2**31 - 1, -(2**31), 16_777_216, 48_000_001, chance.randrange(1000), len(data))
        struct.pack_into("<i", data, chance.randrange(16, len(data) - 3), chance.choice(values))


def _cut(chance: random.Random, data: bytearray) -> None:
    if len(data) > 17:
        start = _at(chance, data)
        del data[start : start + chance.randrange(1, 32)]


def _cut_tail(chance: random.Random, data: bytearray) -> None:
    if len(data) > 17:
        del data[chance.randrange(16, len(data)) :]


def _repeat(chance: random.Random, data: bytearray) -> None:
    if len(data) > 20:
        start = _at(chance, data)
        end = min(len(data), start + chance.randrange(1, 64))
        data[end:end] = data[start:end]


def _repeat_sections(chance: random.Random, data: bytearray) -> None:
    if len(data) > 21:
        data += data[20:]


def _splice(chance: random.Random, data: bytearray) -> None:
    other = chance.choice(_SEEDS)
    start = chance.randrange(16, len(other))
    data[_at(chance, data) :] = other[start:]


def _nest(chance: random.Random, data: bytearray) -> None:
    """A document in a document, some hundreds deep."""
    depth = chance.choice((50, 150, 201, 1000))
    inner = b"\5\0\0\0\0"
    for _ in range(depth):
        inner = struct.pack("<i", len(inner) + 8) + b"\3a\0" + inner + b"\0"
    command = b"\2find\0\3\0\0\0ts\0\3filter\0" + inner + b"\2$db\0\5\0\0\0fuzz\0"
    data[:] = HEADER.pack(0, 0, 0, OP_MSG) + b"\0\0\0\0\0" + struct.pack("<i", len(command) + 5) + command + b"\0"


def _header(chance: random.Random, data: bytearray) -> None:
    if len(data) >= 16:
        position = chance.choice((8, 12))
        struct.pack_into("<i", data, position, chance.choice((0, 1, 2001, 2004, 2005, 2010, 2012, 2013, -1)))


_DAMAGES = (
    _flip_bit, _flip_bit, _flip_bit, _set_byte, _set_byte, _set_length, _set_length, _cut, _cut_tail, _repeat,
    _repeat_sections, _splice, _nest, _header,
)  # fmt: skip
_SEEDS = seeds()


@dataclass
class Outcomes:
    """What became of the messages."""

    counts: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    resident_bytes: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        sizes = f"{self.resident_bytes[0] >> 20} to {self.resident_bytes[-1] >> 20} MB" if self.resident_bytes else "?"
        return f"{self.sent} messages: {dict(self.counts)}, memory {sizes}"


class Fuzzer:
    """Sends damaged messages to ``proxy``, and looks after each batch that all is well.

    ``door``: who sends them, where a login is needed; ``client``: who may look at everything; ``others``: databases
    that other clients use meanwhile; ``others_seconds``: how long a simple question of others may take.
    """

    def __init__(
        self,
        proxy: ProxyProcess,
        seed: int,
        *,
        door: Door | None = None,
        client: pymongo.MongoClient[dict[str, Any]] | None = None,
        others: tuple[str, ...] = (),
        others_seconds: float = OTHERS_SECONDS,
    ) -> None:
        self.outcomes = Outcomes()
        self._door = door or Door(proxy.port)
        self._others = set(others)
        self._others_seconds = others_seconds
        self._proxy = proxy
        self._seed = seed
        self._chance = random.Random(seed)
        self._socket: socket.socket | None = None
        self._request_id = 0
        self._recent: list[bytes] = []
        self._batch: list[bytes] = []
        self._unanswered = bytearray()
        """All messages without a reply. Those that want none may be carried out much later: a client's take turns."""
        self._log_position = len(proxy.log)
        self._client: pymongo.MongoClient[dict[str, Any]] = client or proxy.client(
            socketTimeoutMS=int(OTHERS_SECONDS * 1000), serverSelectionTimeoutMS=int(OTHERS_SECONDS * 1000)
        )
        self._prepare()
        self._databases = self._database_names()

    def _prepare(self) -> None:
        self._client.drop_database(DATABASE)
        self._client[DATABASE].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
        self._client[WATCHED].precious.replace_one({"_id": 1}, {"_id": 1, "value": "as it was"}, upsert=True)

    def run(self, seconds: float) -> Outcomes:
        """Send for so long; raises ``Broken``."""
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                self.some(MESSAGES_PER_CHECK)
        finally:
            self.hang_up()
            self._client.close()
        return self.outcomes

    def some(self, count: int, is_over: Callable[[], bool] = lambda: False) -> None:
        """Send so many, or until it ``is_over``, and look; raises ``Broken``."""
        for _ in range(count):
            if is_over():
                break
            self._send(mutate(self._chance, self._chance.choice(_SEEDS)))
        self._check()

    def _send(self, raw: bytes, *, right_checksums: float = 0.8) -> None:
        """``right_checksums``: how many of the messages that have one, since their ids are changed here."""
        if len(raw) < 16:
            return
        self._request_id = self._request_id % 2_000_000_000 + 1
        data = bytearray(raw)
        struct.pack_into("<i", data, 4, self._request_id)
        has_checksum = len(data) > 24 and data[12:16] == _OP_MSG_BYTES and bool(data[16] & CHECKSUM)
        if has_checksum and self._chance.random() < right_checksums:
            data[-4:] = struct.pack("<I", crc32c.crc32c(data[:-4]))
        self._recent = [*self._recent[-9:], bytes(data)]
        self._batch.append(bytes(data))
        self.outcomes.sent += 1
        if self._socket is None:
            self._socket = self._door.enter().socket
            self._socket.settimeout(ANSWER_SECONDS)
        try:
            self._socket.sendall(data)
        except ConnectionError:
            self.hang_up()
            return
        if struct.unpack_from("<i", data)[0] != len(data):
            # The proxy waits for the rest, or has seen an impossible length.
            self.outcomes.counts["length does not fit"] += 1
            self.hang_up()
        else:
            self._await_reply(bytes(data))

    def _await_reply(self, data: bytes) -> None:
        assert self._socket is not None
        if len(data) >= 20 and data[12:16] == _OP_MSG_BYTES and data[16] & MORE_TO_COME:
            # No reply is due, or the connection is closed.
            self._unanswered += data
            self.outcomes.counts["unacknowledged"] += 1
            self.hang_up()
            return
        try:
            reply = self._receive()
        except ConnectionError:
            self._unanswered += data
            self.outcomes.counts["closed"] += 1
            self.hang_up()
            return
        except TimeoutError:
            # A getMore or hello that waits, for instance; whether the proxy lives is seen by the next check.
            self._unanswered += data
            self.outcomes.counts["no answer in time"] += 1
            self.hang_up()
            if self.outcomes.counts["no answer in time"] > 20 + self.outcomes.sent / 5000:
                raise Broken(self._story("too many messages without an answer")) from None
            return
        _, _, answered, opcode = HEADER.unpack_from(reply)
        if answered != self._request_id:
            raise Broken(self._story(f"reply to {answered} for request {self._request_id}"))
        if b"internal error of the proxy" in reply:
            raise Broken(self._story(f"error of our own: {reply!r}"))
        self.outcomes.counts["answered" if opcode else "?"] += 1
        if reply[16:20] == b"\2\0\0\0" and opcode == OP_MSG:
            # A stream has begun.
            self.hang_up()

    def _receive(self) -> bytes:
        assert self._socket is not None
        data = bytearray()
        while len(data) < 4 or len(data) < struct.unpack_from("<i", data)[0]:
            chunk = self._socket.recv(65_536)
            if not chunk:
                raise ConnectionError
            data += chunk
        return bytes(data)

    def hang_up(self) -> None:
        """Close the connection that messages are sent over."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _check(self) -> None:
        if not self._proxy.running:
            raise Broken(self._story("the proxy ended"))
        started = time.monotonic()
        try:
            self._client[DATABASE].command("ping")
            precious = self._client[WATCHED].precious.find_one({"_id": 1})
        except pymongo.errors.PyMongoError as error:
            raise Broken(self._story(f"others are not answered: {error}")) from error
        if time.monotonic() - started > self._others_seconds:
            raise Broken(self._story("others are answered too late"))
        if precious != {"_id": 1, "value": "as it was"}:
            raise Broken(self._story("a document changed that no message named"))
        appeared = self._database_names() - self._databases
        sent, self._batch = (self._unanswered, b"".join(self._batch)), []
        if strange := {name for name in appeared if not any(name.encode() in each for each in sent)}:
            raise Broken(self._story(f"databases appeared that no message named: {strange}"))
        for name in appeared:
            self._client.drop_database(name)
        news = self._proxy.log[self._log_position :]
        self._log_position += len(news)
        for sign in OUR_OWN_ERRORS:
            if sign in news:
                position = news.index(sign)
                told = news[max(0, position - 500) : position + 4000]
                raise Broken(self._story(f"the log tells of an error of our own:\n{told}"))
        self._measure()
        if not self._client[DATABASE].list_collection_names(filter={"name": "ts", "type": "timeseries"}):
            self._prepare()

    def _measure(self) -> None:
        pages = int(Path(f"/proc/{self._proxy.pid}/statm").read_text().split()[1])
        self.outcomes.resident_bytes.append(pages * 4096)

    def _database_names(self) -> set[str]:
        return set(self._client.list_database_names()) | {DATABASE} | self._others

    def _story(self, what: str) -> str:
        recent = "\n".join(raw.hex() for raw in self._recent)
        return f"{what}\nseed {self._seed}, {self.outcomes}\nlast messages:\n{recent}"
