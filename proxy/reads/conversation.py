"""Runs the generator of a dialogue, in a thread after large replies.

Deletes of measurements unpack and repack whole buckets, which would block the event loop. The generators are pure, so
they can run in any thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from catalog.bson.codec import CODEC
from proxy.request.step_places import StepPlaces
from proxy.request.times import Times
from rewrite.plan import Document, Effect, PassThrough, Pause, Step

LARGE_BYTES: Final = 16 * 1024
"""After a reply of at least this size, a dialogue continues in a thread."""

RAW_CODEC: Final[CodecOptions[RawBSONDocument]] = CodecOptions(
    document_class=RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS
)
"""For replies whose documents are kept unchanged."""

_threads: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dialogues")


class Conversation:
    """One running dialogue."""

    def __init__(
        self,
        generator: Generator[Step | Effect | Pause, Mapping[str, Any], Document | PassThrough],
        turns: StepPlaces,
        owner: Hashable,
        times: Times,
    ) -> None:
        """``turns``: fair turns of the thread by ``owner``, so that one client's dialogues do not delay another's.

        ``times`` records how long the dialogue waits for them.
        """
        self._times = times
        self._generator = generator
        self._turns = turns
        self._owner = owner
        self._is_large = False
        self.result: Document | PassThrough = {}
        """The result, after the end."""

    async def begin(self) -> Step | Effect | Pause | None:
        """Start the dialogue; returns what it yields first, ``None`` at its end."""
        return self._next()

    async def go_on(self, reply: bytes = b"", *, raw: bool = False) -> Step | Effect | Pause | None:
        """Continue after this raw reply, or after an effect; returns what it yields next, ``None`` at its end."""
        self._is_large = self._is_large or len(reply) > LARGE_BYTES
        if not self._is_large:
            return self._send(reply, raw=raw)
        async with self._turns.place(self._owner, self._times):
            return await asyncio.get_running_loop().run_in_executor(_threads, lambda: self._send(reply, raw=raw))

    def close(self) -> None:
        """Close the generator, also before its end."""
        with suppress(ValueError):
            # At a stop, a thread may still run the generator, which then ends with the thread.
            self._generator.close()

    def _next(self) -> Step | Effect | Pause | None:
        try:
            return next(self._generator)
        except StopIteration as stop:
            self.result = stop.value
            return None

    def _send(self, reply: bytes, *, raw: bool) -> Step | Effect | Pause | None:
        answer: Mapping[str, Any] = {}
        if reply and raw:
            answer = RawBSONDocument(reply, RAW_CODEC)
        elif reply:
            decoded: Document = bson.decode(reply, codec_options=CODEC)
            answer = decoded
        try:
            return self._generator.send(answer)
        except StopIteration as stop:
            self.result = stop.value
            return None
