"""A client that sends exactly the bytes it is told to, and reads messages back."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

import bson
from crc32c import crc32c

from proxy.wire import op_compressed, op_msg, op_query
from proxy.wire.message import Message, Opcode
from proxy.wire.reader import MessageReader

Document = Mapping[str, Any]


def body(document: Document | bytes) -> bytes:
    """A body section."""
    return b"\0" + (document if isinstance(document, bytes) else bson.encode(document))


def sequence(identifier: str, *documents: Document | bytes, size: int | None = None) -> bytes:
    """A document sequence; ``size`` claims another size than the true one."""
    payload = identifier.encode() + b"\0"
    payload += b"".join(one if isinstance(one, bytes) else bson.encode(one) for one in documents)
    return b"\x01" + struct.pack("<i", 4 + len(payload) if size is None else size) + payload


def framed(
    opcode: int, payload: bytes, *, request_id: int = 7, response_to: int = 0, length: int | None = None
) -> bytes:
    """Any message; ``length`` claims another length than the true one."""
    true_length = 16 + len(payload)
    return struct.pack("<iiii", true_length if length is None else length, request_id, response_to, opcode) + payload


def op_msg_bytes(*sections: bytes, flags: int = 0, request_id: int = 7, response_to: int = 0) -> bytes:
    """An OP_MSG of raw sections, without a checksum whatever the flags say."""
    payload = struct.pack("<I", flags) + b"".join(sections)
    return framed(Opcode.MSG, payload, request_id=request_id, response_to=response_to)


def command(document: Document, *, flags: int = 0, request_id: int = 7) -> bytes:
    """An ordinary command."""
    return op_msg_bytes(body(document), flags=flags, request_id=request_id)


def query(
    document: Document | bytes, collection: str = "admin.$cmd", number_to_return: int = -1, request_id: int = 7
) -> bytes:
    """An OP_QUERY."""
    raw = document if isinstance(document, bytes) else bson.encode(document)
    payload = bytes(4) + collection.encode() + b"\0" + struct.pack("<ii", 0, number_to_return) + raw
    return framed(Opcode.QUERY, payload, request_id=request_id)


def with_checksum(raw: bytes) -> bytes:
    """The same OP_MSG with a checksum."""
    flags = struct.unpack_from("<I", raw, 16)[0] | op_msg.CHECKSUM_PRESENT
    summed = struct.pack("<i", len(raw) + 4) + raw[4:16] + struct.pack("<I", flags) + raw[20:]
    return summed + struct.pack("<I", crc32c(summed))


def compressed(raw: bytes, compressor: int, *, size: int | None = None, squeezed: bytes | None = None) -> bytes:
    """A message in OP_COMPRESSED; ``size`` and ``squeezed`` replace the true ones."""
    whole = Message.from_bytes(raw)
    content = op_compressed.squeeze(raw[16:], compressor) if squeezed is None else squeezed
    claimed = len(raw) - 16 if size is None else size
    return framed(
        Opcode.COMPRESSED,
        struct.pack("<iiB", whole.opcode, claimed, compressor) + content,
        request_id=whole.request_id,
    )


def document_of(message: Message) -> dict[str, Any]:
    """The document of a reply, whatever carries it."""
    if message.opcode == Opcode.COMPRESSED:
        message = op_compressed.unwrap(message, 48_000_000, (0, 1, 2, 3))
    if message.opcode == Opcode.REPLY:
        return bson.decode(op_query.reply_document(message))
    return bson.decode(op_msg.parse(message).body)


class RawClient:
    """One socket to a server or proxy."""

    def __init__(self, port: int, timeout_seconds: float = 60.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = MessageReader()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """All of it."""
        self.socket.sendall(data)

    def receive(self) -> Message | None:
        """The next message; ``None`` when the peer closed the connection. ``TimeoutError`` when nothing comes."""
        while (message := self._reader.next()) is None:
            try:
                data = self.socket.recv(1 << 18)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._reader.feed(data)
        return message

    def run(self, document: Document) -> dict[str, Any]:
        """One command and its reply."""
        self.send(command(document))
        reply = self.receive()
        assert reply is not None
        return document_of(reply)

    def documents(self, count: int) -> Iterator[dict[str, Any]]:
        """The documents of the next replies."""
        for _ in range(count):
            reply = self.receive()
            assert reply is not None
            yield document_of(reply)


def conversation(
    port: int, data: bytes, *, then_ping: bool = True, seconds: float = 10.0
) -> tuple[list[Message], bool]:
    """What comes back for ``data``, and whether the connection was closed.

    A ping behind the bytes tells that the peer goes on, without waiting for a silence; without ``then_ping`` the
    sending side is closed instead.
    """
    marker = 0x5EED
    replies: list[Message] = []
    with RawClient(port, seconds) as client:
        try:
            client.send(data + (command({"ping": 1, "$db": "admin"}, request_id=marker) if then_ping else b""))
            if not then_ping:
                client.socket.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            return replies, True
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            message = client.receive()
            if message is None:
                return replies, True
            if message.response_to == marker:
                return replies, False
            replies.append(message)
    raise TimeoutError(f"no end within {seconds} s")
