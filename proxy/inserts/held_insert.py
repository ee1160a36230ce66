"""Inserts that wait unstaged because too much is pending."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from catalog.errors import BackendUnavailable
from catalog.identity import Identity
from catalog.namespaces import VirtualCollection
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_reply import InsertReply
from proxy.request.session import Session


class Addressed:
    """The way back to a client, and whether somebody is at its end."""

    __slots__ = ("_reply", "_session")

    def __init__(self, reply: Callable[[bytes | None], None], session: Session) -> None:
        self._reply = reply
        self._session = session

    def __call__(self, document: bytes | None) -> None:
        """The raw reply document; ``None`` for no reply."""
        self._reply(document)

    def is_gone(self) -> bool:
        """Whether the client has left."""
        return self._session.upstream.is_closed


@dataclass(slots=True)
class HeldInsert:
    """What is needed to stage it later; ``reply`` is called once."""

    insert: InsertCommand
    collection: VirtualCollection
    identity: Identity
    reply: Addressed
    deadline_seconds: float

    def turn_away(self) -> None:
        """It has waited as long as a client waits for a server; nothing of it was written."""
        submission = InsertReply(self.insert, self.reply)
        submission.fail(BackendUnavailable("the backend is too slow for what is pending already", code=262))
        submission.staged()


class HeldInserts:
    """Those that wait, in order of arrival."""

    def __init__(self, is_full: Callable[[], bool], is_over: Callable[[float], bool]) -> None:
        """``is_full``: whether too much is pending; ``is_over``: whether a deadline has passed."""
        self._is_full = is_full
        self._is_over = is_over
        self._waiting: deque[HeldInsert] = deque()
        self._releasing = False

    def __bool__(self) -> bool:
        """Whether any wait."""
        return bool(self._waiting)

    def add(self, held: HeldInsert) -> None:
        """One more, behind all others."""
        self._waiting.append(held)

    def release(self, stage: Callable[[HeldInsert], None]) -> None:
        """Stage as many as there is room for."""
        if self._releasing:
            # Each may be settled while it is staged; without this they would nest as deep as there are many.
            return
        self._releasing = True
        try:
            while self._waiting and not self._is_full():
                held = self._waiting.popleft()
                if self._is_over(held.deadline_seconds):
                    held.turn_away()
                else:
                    stage(held)
        finally:
            self._releasing = False
