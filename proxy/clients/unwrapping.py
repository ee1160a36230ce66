"""Large messages are put together, expanded and divided into documents in a thread.

Each copy of 48 MB takes some ten milliseconds, and a few compressed kilobytes may stand for as many.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from proxy.request.exchange import Client, Pending
from proxy.wire import op_compressed, op_msg
from proxy.wire.errors import ProtocolError
from proxy.wire.message import Message, Opcode

ASIDE_BYTES: Final = 128 * 1024
"""Messages that claim to be larger are expanded in a thread."""

_threads: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="expanding")


def _rest() -> None:
    """Compiled modules give the interpreter to other threads only when they are told to."""
    time.sleep(0)


def _prepared(message: Message, max_size_bytes: int) -> Message:
    """In one piece, not compressed, and parsed."""
    whole = message.put_together()
    if whole.opcode == Opcode.COMPRESSED:
        whole = op_compressed.unwrap(whole, max_size_bytes)
    if whole.opcode == Opcode.MSG:
        op_msg.prepare(whole, _rest)
    return whole


class Unwrapping:
    """One message that is being prepared, and then the command in it; a ``Pending``."""

    def __init__(self, client: Client, start: Callable[[Message], Pending]) -> None:
        """``start`` begins to answer the message inside."""
        self._client = client
        self._start = start
        self._inside: Pending | None = None
        self._is_abandoned = False

    async def run(self, message: Message, max_size_bytes: int) -> None:
        """Prepare and start; a client that sent something else loses its connection."""
        loop = asyncio.get_running_loop()
        try:
            whole = await loop.run_in_executor(_threads, _prepared, message, max_size_bytes)
            if not self._is_abandoned:
                self._inside = self._start(whole)
        except ProtocolError:
            if not self._is_abandoned:
                self._client.close()

    def abandon(self) -> None:
        """The client is gone."""
        self._is_abandoned = True
        if self._inside is not None:
            self._inside.abandon()
