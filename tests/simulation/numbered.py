"""Numbered writes under simulation: what the server remembers of sessions, and the way of fences to it (W102)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from catalog.bson.codec import decode, encode
from catalog.commit.statements import TRANSACTION_TOO_OLD
from catalog.errors import CommandError
from catalog.namespaces import Namespace
from proxy.backend.fences import Fences
from proxy.backend.service_connection import LostAfterSending, NotSent
from proxy.backend.write_numbers import SESSIONS, TERM, WriteNumbers

if TYPE_CHECKING:
    from tests.simulation.server import Server

SECRET = b"secret"
COLLECTION = Namespace("db", "c")
RARELY = 1 / (2 * SESSIONS)
"""Each of many commands that set up fences has faults so much more rarely, or no fences would ever be complete."""


class Recorded:
    """What the server knows of the latest command of a session."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.executed: set[int] = set()
        """Documents of it that were inserted, by position."""


class Sessions:
    """The server's memory of numbers."""

    def __init__(self) -> None:
        self._latest: dict[bytes, Recorded] = {}
        self.refused = 0
        """Commands that had too low a number."""
        self.kept_out = 0
        """Writes of these between which and the latest command of their session somebody has set up a fence."""

    def begin(self, lsid: Mapping[str, Any], number: int, *, is_fence: bool = False) -> Recorded | CommandError:
        """A command with this number is about to be executed; if it is too old, why it is not."""
        session = bytes(lsid["id"])
        latest = self._latest.get(session)
        if latest is None or latest.number < number:
            latest = self._latest[session] = Recorded(number)
        elif number < latest.number:
            self.refused += 1
            self.kept_out += not is_fence and number // TERM < latest.number // TERM
            # As servers say it (6.0.5).
            text = (
                f"Retryable write with txnNumber {number} is prohibited on session {session.hex()} because a newer "
                f"retryable write with txnNumber {latest.number} has already started on this session."
            )
            return CommandError(TRANSACTION_TOO_OLD, text)
        return latest


class _FenceLine:
    """``proxy.backend.service.ServicePool`` of one process, as far as ``Fences`` needs it."""

    def __init__(self, server: Server, sender: object, numbers: WriteNumbers | None) -> None:
        self.family = SimpleNamespace(numbers=numbers)
        self._server = server
        self._sender = sender

    async def request(self, body: bytes, deadline_seconds: float) -> bytes:
        """Refused, lost, put off by a stall, or answered."""
        server, chance, faults = self._server, self._server.chance, self._server.faults
        command = decode(body)
        await asyncio.sleep(chance.random() * 0.01)
        if chance.random() < faults.refused * RARELY:
            raise NotSent("connection refused")
        if chance.random() < faults.lost_before * RARELY:
            raise LostAfterSending("connection reset")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def work() -> None:
            begun = server.sessions.begin(command["lsid"], int(command["txnNumber"]), is_fence=True)
            reply: dict[str, Any] = {"n": 0, "ok": 1.0}
            if isinstance(begun, CommandError):
                reply = {"ok": 0.0, "code": begun.code, "errmsg": begun.message}
            if not answer.done():
                answer.set_result(encode(reply))

        assert next(iter(command)) == "delete"
        server.hand_over(work, chance.random() * 0.01, self._sender, is_hidden=True)
        try:
            async with asyncio.timeout_at(deadline_seconds):
                reply = await answer
        except TimeoutError:
            raise LostAfterSending("no answer in time") from None
        await asyncio.sleep(chance.random() * 0.01)
        if chance.random() < faults.lost_after * RARELY:
            raise LostAfterSending("connection reset")
        return reply


def fences_of(server: Server, sender: object, numbers: WriteNumbers | None) -> Fences:
    """The fences that one process sets up, and meets."""
    return Fences(_FenceLine(server, sender, numbers), SECRET, lambda: [COLLECTION])  # type: ignore[arg-type]
