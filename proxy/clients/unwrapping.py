"""Assembles, decompresses and parses large messages in threads.

Copying 48 MB takes some ten milliseconds, and a message of a few compressed kilobytes may expand to as much.
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

LARGE_MESSAGE_BYTES: Final = 128 * 1024
"""Messages whose stated uncompressed size is larger are decompressed in a thread."""

HUGE_MESSAGE_BYTES: Final = 2 * 1024 * 1024
"""Larger ones wait for one another, and smaller ones do not wait for them: 100 of 40 MB take many seconds."""

_threads: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="expanding")
_threads_for_huge: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="expanding huge")


def _rest() -> None:
    """Let other threads run: compiled modules do not release the interpreter's lock by themselves."""
    time.sleep(0)


def _prepared(message: Message, max_size_bytes: int) -> Message:
    """The message in one piece, decompressed and parsed."""
    whole = message.put_together()
    if whole.opcode == Opcode.COMPRESSED:
        whole = op_compressed.unwrap(whole, max_size_bytes, rest=_rest)
    if whole.opcode == Opcode.MSG:
        op_msg.prepare(whole, _rest)
    return whole


def is_huge(message: Message) -> bool:
    """Whether it takes long to prepare; one that claims to be smaller than it is will be refused."""
    if message.pieces is None:
        return op_compressed.claimed_bytes(message) > HUGE_MESSAGE_BYTES
    return message.opcode == Opcode.COMPRESSED or sum(map(len, message.pieces)) > HUGE_MESSAGE_BYTES


class Unwrapping:
    """A large message in preparation, and then its command; implements ``Pending``."""

    def __init__(self, client: Client, start: Callable[[Message], Pending]) -> None:
        """``start`` starts the command of the prepared message."""
        self._client = client
        self._start = start
        self._inside: Pending | None = None
        self._is_abandoned = False
        self._is_alone = False

    async def run(self, message: Message, max_size_bytes: int) -> None:
        """Prepare the message and start its command; closes the connection if the message is malformed."""
        loop = asyncio.get_running_loop()
        try:
            threads = _threads_for_huge if is_huge(message) else _threads
            whole = await loop.run_in_executor(threads, _prepared, message, max_size_bytes)
            if not self._is_abandoned:
                self._inside = self._start(whole)
                if self._is_alone and not self._inside.goes_on_alone():
                    self._inside.abandon()
                    self._client.close()
        except ProtocolError:
            if not self._is_abandoned:
                self._client.close()

    def waited_for_turn(self, since_seconds: float) -> None:
        """See ``Pending``; the clock of a large message starts when it is unwrapped."""

    @property
    def inside(self) -> Pending | None:
        """The command, when it has started."""
        return self._inside

    def goes_on_alone(self) -> bool:
        """See ``Pending``; a message in preparation does not show whether it wants a reply."""
        self._is_alone = True
        return self._inside is None or self._inside.goes_on_alone()

    def abandon(self) -> None:
        """The client has disconnected."""
        self._is_abandoned = True
        if self._inside is not None:
            self._inside.abandon()
