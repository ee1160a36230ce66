"""What a connection does when its client has left during a read: it closes the cursor that the read leaves open.

Nobody continues such a cursor: its id, or a batch of it, has reached nobody. A server would keep it for ten minutes, in
which no parts of buckets are joined. So the connection waits for the end of the read, sends ``killCursors``, as a
driver does after an error, and then ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import bson

from catalog.errors import CommandError
from proxy.clients.left_client import LeftClient
from proxy.readers.active_readers import cursor_left_by
from proxy.request.command import Command
from proxy.request.command_table import OPENS_CURSOR
from proxy.request.exchange import TAIL_BYTES, Exchange
from proxy.wire import op_msg
from proxy.wire.errors import ProtocolError
from proxy.wire.message import Message
from proxy.wire.request_ids import next_request_id

PATIENCE_SECONDS: Final = 10.0
"""Maximum time until the cursor is closed. A server that is slower ends most reads whose connection is closed."""
AT_ONCE: Final = 100
"""Maximum number of such connections at once; others end at once."""

_KEPT: Final = (b"lsid", b"apiVersion", b"apiStrict", b"apiDeprecationErrors", b"$db")
"""Fields that ``killCursors`` has from the read."""


class LeftReaders:
    """The number of connections whose client has left during a read."""

    def __init__(self, most: int = AT_ONCE) -> None:
        self._most = most
        self.count = 0

    @property
    def has_room(self) -> bool:
        """Whether there may be another one."""
        return self.count < self._most


class LeftReader(LeftClient):
    """Keeps the end of a reply, for the id of its cursor. It closes itself after ``patience_seconds``."""

    def __init__(
        self,
        peer: Any,
        on_close: Callable[[], None],
        exchange: Exchange,
        readers: LeftReaders,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """``exchange``: the running command; ``on_close`` is called once."""
        super().__init__(peer, on_close)
        self._read: Command | None = exchange.parsed()
        self._tail = exchange.client_left()
        self._readers = readers
        readers.count += 1
        self._timer = asyncio.get_running_loop().call_later(patience_seconds, self.close)

    def close(self) -> None:
        if not self.is_closing():
            self._timer.cancel()
            self._readers.count -= 1
        super().close()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Keep the end."""
        self._tail = (self._tail + bytes(data[-TAIL_BYTES:]))[-TAIL_BYTES:]

    def closing_command(self) -> Message | None:
        """The read has ended: the command that closes its cursor; ``None`` if it has left none, or at the next call."""
        read, self._read = self._read, None
        cursor_id = 0 if read is None else cursor_left_by(self._tail)
        return None if read is None or not cursor_id else _kill_cursors(read, cursor_id)


def leaves_cursor(exchange: Exchange) -> bool:
    """Whether a running command may leave a cursor that joins wait for."""
    if exchange.reader is None or not exchange.expects_reply:
        return False
    try:
        command = exchange.parsed()
    except (CommandError, ProtocolError):
        return False
    # A server closes the cursor of a stream of replies itself.
    return command.name in OPENS_CURSOR or (command.name == "getMore" and not command.exhaust_allowed)


def _kill_cursors(read: Command, cursor_id: int) -> Message:
    named = read.get("collection") if read.name == "getMore" else read.namespace.collection
    body = {"killCursors": named or "$cmd.aggregate", "cursors": [bson.Int64(cursor_id)]}
    kept = (bytes((read.fields[name][0],)) + name + b"\0" + read.raw(name) for name in _KEPT if name in read.fields)
    elements = bson.encode(body)[4:-1] + b"".join(kept)
    document = (len(elements) + 5).to_bytes(4, "little") + elements + b"\0"
    return Message.from_bytes(op_msg.build(next_request_id(), 0, document))
