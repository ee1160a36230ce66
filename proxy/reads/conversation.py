"""A dialogue's generator, driven so that what it makes of large replies holds nobody.

Deletes of measurements take whole buckets apart and put them together again. That is done in a thread as soon as a
reply was large: the generators are pure, so it does not matter where they run.
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
from proxy.reads.step_places import StepPlaces
from rewrite.plan import Document, Effect, PassThrough, Pause, Step

LARGE_BYTES: Final = 16 * 1024
"""After a reply of so many bytes a dialogue goes on in a thread."""

RAW_CODEC: Final[CodecOptions[RawBSONDocument]] = CodecOptions(
    document_class=RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS
)
"""Replies whose documents are kept byte for byte."""

_threads: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dialogues")


class Conversation:
    """One dialogue under way."""

    def __init__(
        self,
        generator: Generator[Step | Effect | Pause, Mapping[str, Any], Document | PassThrough],
        turns: StepPlaces,
        owner: Hashable,
    ) -> None:
        """``turns``: of the thread, by ``owner``, so that nobody's many dialogues keep another's from it."""
        self._generator = generator
        self._turns = turns
        self._owner = owner
        self._is_large = False
        self.result: Document | PassThrough = {}
        """What it ended with, once nothing more is said."""

    async def begin(self) -> Step | Effect | Pause | None:
        """What is said first; ``None``: nothing more."""
        return self._next()

    async def go_on(self, reply: bytes = b"", *, raw: bool = False) -> Step | Effect | Pause | None:
        """What is said after this raw reply, or after an effect; ``None``: nothing more."""
        self._is_large = self._is_large or len(reply) > LARGE_BYTES
        if not self._is_large:
            return self._send(reply, raw=raw)
        async with self._turns.place(self._owner):
            return await asyncio.get_running_loop().run_in_executor(_threads, lambda: self._send(reply, raw=raw))

    def close(self) -> None:
        """Whether or not it has ended."""
        with suppress(ValueError):
            # When the proxy stops a thread may still be at it; then it ends with the thread.
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
