"""How clients of every kind get in, and a connection that checks what comes back."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

import bson
import pymongo

from tests.support.wire import WireClient

_HEADER = struct.Struct("<iiii")
OUR_OWN_ERRORS = (
    "internal error of the proxy",
    "unexpected error",
    "a task ended with an error",
    "Traceback",
)
"""What neither a reply nor the log may hold."""


class Broken(AssertionError):
    """Something that must hold does not."""


@dataclass(frozen=True)
class Door:
    """A port, and who comes in: nobody in particular where ``user`` is empty.

    ``guarded``: a login is needed there, so that whoever may not is to be refused.
    """

    port: int
    guarded: bool = False
    user: str = ""
    password: str = ""
    database: str = "admin"

    def enter(self, timeout_seconds: float = 30.0) -> Caller:
        """A connection, logged in where there is a user."""
        caller = Caller(self.port, timeout_seconds=timeout_seconds)
        if self.user:
            try:
                caller.login(self.database, self.user, self.password)
            except BaseException:
                caller.close()
                raise
        return caller

    @contextmanager
    def several(self, count: int) -> Iterator[list[Caller]]:
        """So many connections, all closed at the end."""
        with ExitStack() as stack:
            yield [stack.enter_context(self.enter()) for _ in range(count)]

    def client(self, **options: Any) -> pymongo.MongoClient[dict[str, Any]]:
        """A driver's client; the caller closes it."""
        login = f"{self.user}:{quote_plus(self.password)}@" if self.user else ""
        source = f"?authSource={self.database}" if self.user else ""
        uri = f"mongodb://{login}127.0.0.1:{self.port}/{source}"
        return pymongo.MongoClient(uri, **{"serverSelectionTimeoutMS": 20_000, "directConnection": True, **options})


class Caller(WireClient):
    """Sends prepared messages; every reply must answer one of them and be no error of the proxy's own."""

    def send(self, raw: bytes) -> int:
        """A message with an id of its own, which is returned; all else stays as it is."""
        self._request_id += 1
        self.socket.sendall(b"".join((raw[:4], struct.pack("<i", self._request_id), raw[8:])))
        return self._request_id

    def ask(self, raw: bytes) -> bytes:
        """The reply document to a prepared message."""
        sent = self.send(raw)
        return self.answer_to((sent,))

    def answer_to(self, requests: Sequence[int]) -> bytes:
        """The next reply document, which must answer one of ``requests``."""
        reply = self.receive()
        _, _, answered, opcode = _HEADER.unpack_from(reply)
        if answered not in requests:
            raise Broken(f"reply to {answered}, which is none of {requests}")
        text = reply[:4096]
        for sign in OUR_OWN_ERRORS[:2]:
            if sign.encode() in text:
                raise Broken(f"a reply tells of an error of our own: {text!r}")
        return reply[21:] if opcode == 2013 else reply[36:]


def raw_message(
    document: dict[str, Any] | bytes, *, flags: int = 0, sequence: tuple[str, Sequence[bytes]] | None = None
) -> bytes:
    """An OP_MSG without an id; ``sequence`` are encoded documents and the name of their section."""
    body = document if isinstance(document, bytes) else bson.encode(document)
    parts = [struct.pack("<I", flags), b"\0", body]
    if sequence is not None:
        name, documents = sequence
        payload = name.encode() + b"\0" + b"".join(documents)
        parts += [b"\1", struct.pack("<i", 4 + len(payload)), payload]
    content = b"".join(parts)
    return _HEADER.pack(16 + len(content), 0, 0, 2013) + content
