"""What a connection writes to when its client has left, while commands that want no reply are carried out.

A server executes what it has received, also if the client disconnects at once: a script that inserts with ``w: 0`` and
ends, or is killed, loses nothing. So a connection whose client has closed or reset it goes on with the commands that
want no reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from proxy.wire import op_msg
from proxy.wire.limits import HEADER_SIZE_BYTES
from proxy.wire.message import Message, Opcode


def wants_reply(message: Message) -> bool:
    """Whether a message is known to want a reply; one that is compressed or in pieces does not show it."""
    if message.opcode != Opcode.MSG or message.pieces is not None or len(message.raw) <= HEADER_SIZE_BYTES:
        return False
    return not message.raw[HEADER_SIZE_BYTES] & op_msg.MORE_TO_COME


class LeftClient(asyncio.Transport):
    """A transport without a peer: what is written is dropped."""

    def __init__(self, peer: Any, on_close: Callable[[], None]) -> None:
        """``peer``: the address of the client; ``on_close`` is called once, when the connection is done."""
        super().__init__({"peername": peer})
        self._on_close: Callable[[], None] | None = on_close

    def is_closing(self) -> bool:
        """Whether the connection is done."""
        return self._on_close is None

    def close(self) -> None:
        callback, self._on_close = self._on_close, None
        if callback is not None:
            callback()

    def abort(self) -> None:
        self.close()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Drop a reply."""

    def get_write_buffer_size(self) -> int:
        """Nothing waits to be written."""
        return 0

    def pause_reading(self) -> None:
        """Nothing arrives any more."""

    def resume_reading(self) -> None:
        """Nothing arrives any more."""
