"""Writes the replies to inserts a few at a time.

A commit settles the inserts of many clients at the same moment, and each reply costs a system call that wakes a client.
If all were written in one turn of the event loop, every other command would wait for them: hundreds of replies take
milliseconds. So a few are written in each turn, and the loop looks for messages in between.

A round of commits that is about to begin waits for the replies that were queued before it. Otherwise it would begin
with the inserts of the few clients that have their reply, and rounds would become smaller and dearer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from catalog.bson.raw import pack_int32
from catalog.ports import Acknowledgement
from proxy.request.exchange import Exchange

_CLUSTER_TIME: Final = b"$clusterTime\0"
REPLIES_IN_A_TURN: Final = 16
"""On a machine whose clients are local, a reply takes 25 to 40 µs."""


class _Reply:
    __slots__ = ("acknowledgement", "document", "exchange")

    def __init__(self, exchange: Exchange, document: bytes | None, acknowledgement: Acknowledgement | None) -> None:
        self.exchange = exchange
        self.document = document
        self.acknowledgement = acknowledgement


class PacedReplies:
    """The replies that wait for a turn; each insert in progress has one at most."""

    def __init__(self, report: Callable[[BaseException], None], times: Callable[[], bytes] = lambda: b"") -> None:
        """``report`` gets internal errors.

        ``times`` returns the raw elements of the latest cluster times that are known, for replies that no commit has
        made.
        """
        self._report = report
        self._times = times
        self._left = REPLIES_IN_A_TURN
        """Replies until ``_next`` is called; it is called when there are none left."""
        self._waiting: deque[_Reply | Callable[[], None]] = deque()
        self._is_scheduled = False

    def reply(self, exchange: Exchange, document: bytes | None, acknowledgement: Acknowledgement | None = None) -> None:
        """Reply with a raw document, or with nothing (``Exchange.reply``), in this turn or in one that follows."""
        if acknowledgement is None and document is not None:
            document = _with_times(document, self._times())
        if self._left > 0:
            self._left -= 1
            exchange.reply(document, acknowledgement)
            if self._left > 0:
                return
        else:
            self._waiting.append(_Reply(exchange, document, acknowledgement))
        self._schedule()

    def queue(self, call: Callable[[], None]) -> bool:
        """Whether replies wait; then ``call`` is made when they have been written."""
        if not self._waiting:
            return False
        self._waiting.append(call)
        return True

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._is_scheduled = False
        self._left = REPLIES_IN_A_TURN
        waiting = self._waiting
        while waiting and (self._left > 0 or not isinstance(waiting[0], _Reply)):
            try:
                self._take(waiting.popleft())
            except Exception as error:  # noqa: BLE001 - reported; the other clients get their replies
                self._report(error)
        if self._left <= 0:
            self._schedule()

    def _take(self, each: _Reply | Callable[[], None]) -> None:
        if isinstance(each, _Reply):
            self._left -= 1
            each.exchange.reply(each.document, each.acknowledgement)
        else:
            each()


def _with_times(document: bytes, times: bytes) -> bytes:
    if not times or _CLUSTER_TIME in document:
        return document
    return pack_int32(len(document) + len(times)) + document[4:-1] + times + b"\0"
