"""The connection between the supervisor and one worker: questions with answers, and notices, in both directions.

A message is one BSON document, which begins with its length. Both ends are processes of the same program that trust
each other; the connection is a pair of sockets that nobody else can reach. If one end dies, the other learns it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, Final, cast

import bson

from catalog.errors import INTERNAL_ERROR, CommandError
from proxy.observe.tasks import TaskSet

MOST_BYTES: Final = 64 * 1024 * 1024
"""Longest message; a longer one ends the connection."""

LOOK_SECONDS: Final = 2.0
"""Interval of looks whether it makes sense to wait for an answer."""

Replier = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Answers a question by its name and fields; raises ``CommandError``."""


class ChannelLost(Exception):
    """The other process has gone, or does not answer."""


class Channel(asyncio.Protocol):
    """One end, a protocol of the event loop."""

    def __init__(
        self,
        answer: Replier,
        noticed: Callable[[str, Mapping[str, Any]], None],
        tasks: TaskSet,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """``answer`` is for questions of the other end, ``noticed`` for its notices.

        ``lost`` is called if it goes before this end is closed.
        """
        self._answer = answer
        self._noticed = noticed
        self._lost = lost
        self._tasks = tasks
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._questions: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._numbers = count(1)
        self._is_lost = asyncio.Event()
        self._is_closed = False

    async def ask(
        self,
        question: str,
        fields: Mapping[str, Any],
        timeout_seconds: float,
        is_hopeless: Callable[[], bool] = lambda: False,
    ) -> Mapping[str, Any]:
        """The answer of the other end; raises what it raises as ``CommandError``, and ``ChannelLost``.

        ``is_hopeless``: whether to wait no longer than ``LOOK_SECONDS``; asked again each time these have passed.
        """
        number = next(self._numbers)
        answered: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._questions[number] = answered
        try:
            self._send({"question": question, "number": number, "fields": fields})
            left_seconds = timeout_seconds
            while left_seconds > 0:
                step_seconds = min(left_seconds, LOOK_SECONDS)
                await asyncio.wait({answered}, timeout=step_seconds)
                if answered.done():
                    return answered.result()
                left_seconds -= step_seconds
                if is_hopeless():
                    break
            raise ChannelLost(f"no answer in {timeout_seconds - left_seconds:g} s")
        finally:
            del self._questions[number]

    def tell(self, notice: str, fields: Mapping[str, Any]) -> None:
        """Send a notice; nobody hears it if the other end has gone."""
        if self._transport is not None:
            self._send({"notice": notice, "fields": fields})

    async def lost(self) -> None:
        """Wait until the other end has gone and everything that it has sent was received."""
        await self._is_lost.wait()

    def close(self) -> None:
        """Close the connection after what was sent."""
        self._is_closed = True
        if self._transport is not None:
            self._transport.close()

    # --- asyncio.Protocol ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        received = self._received
        received += data
        while len(received) >= 4:
            size = int.from_bytes(received[:4], "little")
            if not 5 <= size <= MOST_BYTES:
                self.close()
                return
            if len(received) < size:
                return
            message = bson.decode(bytes(received[:size]))
            del received[:size]
            self._take(message)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._transport = None
        for answered in self._questions.values():
            if not answered.done():
                answered.set_exception(ChannelLost("the process has ended"))
        self._is_lost.set()
        if not self._is_closed:
            self._lost()

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._transport is None:
            raise ChannelLost("the process has ended")
        self._transport.write(bson.encode(message))

    def _take(self, message: Mapping[str, Any]) -> None:
        if "notice" in message:
            self._noticed(message["notice"], message["fields"])
        elif "question" in message:
            self._tasks.spawn(self._reply(message))
        else:
            answered = self._questions.get(message["number"])
            if answered is None or answered.done():
                return
            if "error" in message:
                error = message["error"]
                answered.set_exception(CommandError(error["code"], error["message"], details=error["details"]))
            else:
                answered.set_result(message["fields"])

    async def _reply(self, message: Mapping[str, Any]) -> None:
        number = message["number"]
        reply: dict[str, Any]
        try:
            reply = {"number": number, "fields": await self._answer(message["question"], message["fields"])}
        except CommandError as error:
            described = {"code": error.code, "message": error.message, "details": dict(error.details or {})}
            reply = {"number": number, "error": described}
        except Exception as error:
            described = {"code": INTERNAL_ERROR, "message": f"{type(error).__name__}: {error}", "details": {}}
            reply = {"number": number, "error": described}
            self._try_to_send(reply)
            raise
        self._try_to_send(reply)

    def _try_to_send(self, reply: Mapping[str, Any]) -> None:
        if self._transport is not None:
            self._send(reply)
