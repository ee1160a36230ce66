"""What processes know of a session besides its statements (W102): whose it is, and what others may have executed."""

from __future__ import annotations

import math
from enum import Enum
from typing import TypeAlias

from catalog.identity import Identity

SessionKey: TypeAlias = tuple[bytes, Identity]
"""A raw ``lsid`` and its users: equal ids of different users are different sessions."""


class Search(Enum):
    """Whether the statements of a transaction are looked up in the stored buckets."""

    NONE = 0
    FENCED = 1
    """Only before they are relayed: where fences refuse a write, others cannot have executed it (``proxy.peers``)."""
    SOUGHT = 2
    FOUND = 3
    """They are, and rows were found for some, which do not count for another statement."""


class Tenure:
    """Since when a session belongs to this process.

    ``generation``: that of the log when the session came to this process, -1 if it was given away. ``taken_seconds``:
    when that was, if others were asked. ``may_be_behind``: one of them could not be asked, and may know a newer number,
    if that of this process came late. Clients have sent ``sent_seconds`` at the earliest a message with this number,
    and ``begun_seconds`` any with this number; both by the clock of the clients' connections, and -inf if unknown.
    """

    __slots__ = ("begun_seconds", "generation", "may_be_behind", "sent_seconds", "session", "taken_seconds")

    def __init__(self, session: SessionKey, generation: int) -> None:
        self.session = session
        self.generation = generation
        self.taken_seconds = -math.inf
        self.may_be_behind = False
        self.sent_seconds = -math.inf
        self.begun_seconds = -math.inf

    @property
    def next_begun_seconds(self) -> float:
        """``begun_seconds`` of the next number: a client uses it when it is done with this one."""
        return max(self.begun_seconds, self.sent_seconds)

    def follow(self, earlier: Tenure) -> None:
        """It has the next number of the session."""
        self.begun_seconds = earlier.next_begun_seconds
