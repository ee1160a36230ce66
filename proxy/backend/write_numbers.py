"""Numbers the writes of this process, so that others can have the backend refuse those that arrive too late (W102).

What a process has sent may lie in the network while it is cut off, and reach the backend long afterwards, when clients
have sent their statements again through another process. A server refuses a numbered write if it knows a higher number
of the same session. So each write has a number, in a session whose id other processes can derive. Before one of them
takes statements of this process over, it sets up *fences* (``proxy.backend.fences``): a higher number in each session.

The upper half of a number is its *term*. A fence is the first number of a term that is higher than all before, so that
each one is effective. A process whose write is refused goes on with the number that has refused it, once it has asked
what became of the statements in progress.

https://www.mongodb.com/docs/v6.0/core/retryable-writes/
"""

from __future__ import annotations

import re
import struct
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from bson.binary import Binary

from catalog.bson.codec import encode
from catalog.commit.statements import TRANSACTION_TOO_OLD
from catalog.ports import Applied, BulkOutcome, Rejected
from proxy.request.service_sessions import derived_session

SESSIONS: Final = 32
"""How many sessions of a process have fences. More are used only while as many writes are in progress."""
TERM: Final = 1 << 32
"""How many numbers a term has."""
LOWEST: Final = 1
"""No write has this number."""
MOST_SPARE: Final = 64

_KNOWN: Final = re.compile(r"(\d+) has already started")
_LENGTH: Final = struct.Struct("<i")
_NUMBER: Final = struct.Struct("<qx")


def session_of(secret: bytes, process: str, place: int) -> Mapping[str, Any]:
    """The ``lsid`` of a session of the process with this name; ``place``: below ``SESSIONS``.

    ``secret``: see ``proxy.request.service_sessions.session_secret``.
    """
    return derived_session(secret, {"writes": process, "place": place})


class WriteNumber:
    """A session, and the number of the write in it that is in progress."""

    __slots__ = ("_fields", "has_fence", "number", "session")

    def __init__(self, session: Mapping[str, Any], *, has_fence: bool) -> None:
        self.session = session
        self.number = 0
        self.has_fence = has_fence
        self._fields = encode({"lsid": session})[4:-1] + b"\x12txnNumber\0"

    def numbered(self, body: bytes) -> bytes:
        """A command with this number."""
        fields = self._fields + _NUMBER.pack(self.number)
        return _LENGTH.pack(len(body) - 1 + len(fields)) + body[4:-1] + fields


class WriteNumbers:
    """The numbers of this process."""

    def __init__(self, secret: bytes, process: str) -> None:
        """``process``: the name of this process at the backend."""
        self._secret = secret
        self._process = process
        self._free: deque[WriteNumber] = deque()
        self._spare: deque[WriteNumber] = deque()
        self._made = 0
        self._known = LOWEST
        """The highest number of a fence that has refused a write."""
        self.on_fence: Callable[[], None] = lambda: None
        """Called when the backend refuses a write because of a fence: others have taken statements over."""
        self.must_have_fences: Callable[[], bool] = lambda: False
        """Whether others may take statements over at the moment, so that sessions without fences are not used."""

    def may_take(self) -> bool:
        """Whether a write may be sent now with the next number; otherwise when another one has ended."""
        return bool(self._free) or self._made < SESSIONS or not self.must_have_fences()

    def may_send(self, number: WriteNumber) -> bool:
        """Whether a write may be sent now with this number."""
        return number.has_fence or not self.must_have_fences()

    def take(self) -> WriteNumber:
        """A number for one write, higher than all others of its session."""
        number = self._session()
        number.number = max(number.number, self._known) + 1
        return number

    def _session(self) -> WriteNumber:
        if self._free:
            return self._free.pop()
        if self._made < SESSIONS:
            self._made += 1
            return WriteNumber(session_of(self._secret, self._process, self._made - 1), has_fence=True)
        return self._spare.pop() if self._spare else WriteNumber({"id": Binary(uuid.uuid4().bytes, 4)}, has_fence=False)

    def free(self, number: WriteNumber, *, is_answered: bool = True) -> None:
        """The write will not be sent again. If it was not answered, its session may be busy for a while."""
        idle = self._free if number.has_fence else self._spare
        if is_answered:
            idle.append(number)
        else:
            idle.appendleft(number)
        if len(self._spare) > MOST_SPARE:
            self._spare.popleft()

    def ended(self, numbers: Sequence[WriteNumber], outcome: BulkOutcome | None) -> bool:
        """A write that had these numbers will not be sent again; returns whether a fence has kept it out."""
        is_fenced = False
        for number in numbers:
            is_fenced = self.meets_fence(number, outcome)
            self.free(number, is_answered=isinstance(outcome, Applied | Rejected))
        return is_fenced

    def meets_fence(self, number: WriteNumber, outcome: BulkOutcome | None) -> bool:
        """Whether the backend has not executed the write with this number because of a fence, which is noted."""
        if not isinstance(outcome, Rejected) or outcome.error.code != TRANSACTION_TOO_OLD:
            return False
        self.learn(known_number(outcome.error.message, number.number))
        return True

    def learn(self, known: int) -> None:
        """A server knows this number of a session of this process."""
        if known > self._known:
            self._known = known
            self.on_fence()


def next_term(number: int) -> int:
    """The first number of the term behind that of a ``number``."""
    return (number // TERM + 1) * TERM


def known_number(message: str, refused: int) -> int:
    """The number that a server knew when it refused one as too old, from its error message.

    If the message does not tell, it is taken to be that of the next fence.
    """
    found = _KNOWN.search(message)
    return max(int(found[1]), refused) if found else next_term(refused)
