"""A client that says exactly what a test wants said, one message at a time."""

from __future__ import annotations

import hashlib
import socket
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import bson
from bson.codec_options import CodecOptions
from scramp import ScramClient

from tests.support.ports import LOOPBACK

_HEADER = struct.Struct("<iiii")
OP_MSG = 2013
_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=False)


def op_msg(document: Mapping[str, Any] | bytes, request_id: int = 1, flags: int = 0) -> bytes:
    """A whole message with one body section."""
    body = document if isinstance(document, bytes) else bson.encode(document)
    return _HEADER.pack(21 + len(body), request_id, 0, OP_MSG) + struct.pack("<I", flags) + b"\0" + body


class WireClient:
    """One TCP connection; ``command`` sends an OP_MSG and returns the reply document."""

    def __init__(self, port: int, *, timeout_seconds: float = 20, source: str = LOOPBACK, host: str = LOOPBACK) -> None:
        source_address = (source, 0) if host == LOOPBACK else None
        self.socket = socket.create_connection((host, port), timeout=timeout_seconds, source_address=source_address)
        self._request_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def command(self, document: Mapping[str, Any] | bytes) -> dict[str, Any]:
        """Send one command (with its ``$db``) and wait for the reply."""
        self._request_id += 1
        self.socket.sendall(op_msg(document, self._request_id))
        reply = self.receive()
        assert _HEADER.unpack_from(reply)[2] == self._request_id
        return bson.decode(reply[21:], codec_options=_CODEC)

    def receive(self) -> bytes:
        """One whole message; ``ConnectionError`` at the end of the stream."""
        head = self._exactly(4)
        return head + self._exactly(int.from_bytes(head, "little") - 4)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError("the peer closed the connection")
            data += chunk
        return bytes(data)

    def is_closed(self) -> bool:
        """Whether the peer hangs up, waiting as long as the timeout."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def login(
        self, database: str, user: str, password: str, mechanism: str = "SCRAM-SHA-256", *, checked: bool = True
    ) -> None:
        """A SCRAM conversation; unless ``checked``, one that is refused is no error."""
        if mechanism == "SCRAM-SHA-1":
            password = hashlib.md5(f"{user}:mongo:{password}".encode(), usedforsecurity=False).hexdigest()
        client = ScramClient([mechanism], user, password)
        start = {"saslStart": 1, "mechanism": mechanism, "payload": client.get_client_first().encode()}
        reply = self.command({**start, "options": {"skipEmptyExchange": True}, "$db": database})
        if not checked and not reply["ok"]:
            return
        client.set_server_first(reply["payload"].decode())
        final = {"saslContinue": 1, "conversationId": reply["conversationId"]}
        reply = self.command({**final, "payload": client.get_client_final().encode(), "$db": database})
        if not checked and not reply["ok"]:
            return
        assert reply["ok"] == 1, reply
        client.set_server_final(reply["payload"].decode())
