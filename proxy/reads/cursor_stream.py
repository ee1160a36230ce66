"""Renames the cursor in a reply, and passes a large batch on to the client while it arrives.

In a cursor's reply, the cursor's name comes after the batch. The difference in length of the two names is known in
advance, so the lengths at the head of the reply are set before the rest has arrived.
"""

from __future__ import annotations

from typing import Final

from catalog.bson.raw import pack_int32, string_value, unpack_int32, unpack_int64
from catalog.namespaces import Namespace
from proxy.wire import op_msg
from proxy.wire.message import LENGTH

LARGE_BYTES: Final = 64 * 1024
"""Smaller replies are not streamed."""

_BODY: Final = op_msg.BODY_AT
_CURSOR: Final = b"\x03cursor\0"
_CURSOR_AT: Final = _BODY + 4
_INSIDE_AT: Final = _CURSOR_AT + len(_CURSOR)
_BATCHES: Final = (b"\x04firstBatch\0", b"\x04nextBatch\0")
HEAD_BYTES: Final = _INSIDE_AT + 4 + max(map(len, _BATCHES)) + 4
"""Number of bytes at the beginning of a reply that are needed to recognise a batch."""


_ID: Final = b"\x12id\0"
_ID_BYTES: Final = len(_ID) + 8


class Renaming:
    """Replaces the backend's name of a cursor by the client's."""

    __slots__ = ("_given", "_stored", "buckets", "grown_bytes")

    def __init__(self, buckets: Namespace) -> None:
        """``grown_bytes``: how much longer a reply becomes; negative if it becomes shorter."""
        self.buckets = buckets
        self._stored = _name_element(buckets)
        self._given = _name_element(buckets.logical)
        self.grown_bytes = len(self._given) - len(self._stored)

    def whole(self, reply: bytes, request_id: int, response_to: int) -> tuple[bytes, int] | None:
        """The client's form of a whole reply message, and the id of its cursor.

        ``None`` if it is not a cursor's reply with the fields in the servers' order.
        """
        if len(reply) < HEAD_BYTES or reply[_BODY - 5 : _BODY] != bytes(5):
            return None
        head = op_msg.head(request_id, response_to, len(reply) - _BODY + self.grown_bytes)
        return self._renamed(reply, _BODY, head)

    def document(self, reply: bytes) -> tuple[bytes, int] | None:
        """As ``whole``, for the reply document alone."""
        return self._renamed(reply, 0, b"")

    def _renamed(self, raw: bytes, start: int, head: bytes) -> tuple[bytes, int] | None:
        size = len(raw) - start
        inside_at = start + 4 + len(_CURSOR)
        if size < HEAD_BYTES - _BODY or not raw.startswith(_CURSOR, start + 4):
            return None
        inside = int(unpack_int32(raw, inside_at)[0])
        end = inside_at + inside - 1
        name_at = end - len(self._stored)
        id_at = name_at - _ID_BYTES
        if (
            not inside_at < id_at < name_at < end < len(raw)
            or int(unpack_int32(raw, start)[0]) != size
            or raw[name_at:end] != self._stored
            or not raw.startswith(_ID, id_at)
        ):
            return None
        parts = (
            head,
            pack_int32(size + self.grown_bytes),
            _CURSOR,
            pack_int32(inside + self.grown_bytes),
            raw[inside_at + 4 : name_at],
            self._given,
            raw[end:],
        )
        return b"".join(parts), int(unpack_int64(raw, name_at - 8)[0])


def _name_element(namespace: Namespace) -> bytes:
    name = string_value(str(namespace).encode())
    return name[:1] + b"ns\0" + name[1:]


class CursorStream:
    """One reply that is passed on in pieces."""

    __slots__ = ("_batch_at", "_left_bytes", "_reply_bytes", "_rest_of_cursor_bytes", "_tail")

    def __init__(self, head: bytes, batch_at: int) -> None:
        self._batch_at = batch_at
        self._reply_bytes = LENGTH.unpack_from(head)[0]
        batch_bytes = unpack_int32(head, batch_at)[0]
        self._rest_of_cursor_bytes = _INSIDE_AT + unpack_int32(head, _INSIDE_AT)[0] - batch_at - batch_bytes
        self._left_bytes = batch_bytes - 4
        self._tail = b""

    @classmethod
    def of(cls, head: bytes) -> CursorStream | None:
        """The stream for a reply that begins with ``head``; ``None`` if it is small or not a cursor's.

        ``head`` has at least ``HEAD_BYTES``.
        """
        reply_bytes = LENGTH.unpack_from(head)[0]
        if reply_bytes < LARGE_BYTES or head[_BODY - 5 : _BODY] != bytes(5) or not head.startswith(_CURSOR, _CURSOR_AT):
            return None
        for name in _BATCHES:
            if head.startswith(name, _INSIDE_AT + 4):
                stream = cls(head, _INSIDE_AT + 4 + len(name))
                return stream if stream._is_sound(head) else None
        return None

    def _is_sound(self, head: bytes) -> bool:
        tail_bytes = self._reply_bytes - self._batch_at - 4 - self._left_bytes
        fits = self._left_bytes > 0 and 0 < self._rest_of_cursor_bytes < tail_bytes
        return fits and bool(unpack_int32(head, _BODY)[0] == self._reply_bytes - _BODY)

    def head(self, head: bytes, grown_bytes: int, request_id: int, response_to: int) -> bytes:
        """The beginning of the client's reply, which is ``grown_bytes`` longer than the backend's."""
        size = self._reply_bytes - _BODY + grown_bytes
        inside = unpack_int32(head, _INSIDE_AT)[0] + grown_bytes
        begun = op_msg.head(request_id, response_to, size) + pack_int32(size) + _CURSOR + pack_int32(inside)
        return begun + head[_INSIDE_AT + 4 : self._batch_at + 4]

    def body_at(self) -> int:
        """The offset in the backend's reply from which ``feed`` continues after ``head``."""
        return self._batch_at + 4

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the reply after its head; returns those that belong to the batch."""
        size = len(data)
        if size <= self._left_bytes:
            self._left_bytes -= size
            return data
        batch = data[: self._left_bytes]
        self._tail += data[self._left_bytes :]
        self._left_bytes = 0
        return batch

    @property
    def has_tail(self) -> bool:
        """Whether the batch is complete and bytes after it have arrived."""
        return bool(self._tail)

    def without_batch(self) -> bytes:
        """The complete reply document without the batch."""
        inside = self._rest_of_cursor_bytes + 4
        return pack_int32(4 + len(_CURSOR) + 4 + len(self._tail)) + _CURSOR + pack_int32(inside) + self._tail

    @staticmethod
    def tail(document: bytes) -> bytes:
        """The end of the client's reply after the batch, from the renamed form of ``without_batch``."""
        return document[4 + len(_CURSOR) + 4 :]
