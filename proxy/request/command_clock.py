"""The clock of one command, and the record of where its time goes."""

from __future__ import annotations

import time

from proxy.request.slow_threshold import SlowThreshold
from proxy.request.times import NOT_SENT, Times, WaitKind


class CommandClock:
    """Starts when it is made. Recognised commands use nothing else; others record when they wait, and for what.

    ``sent_seconds``: since when the backend has the command as a whole, 0 if since its start, ``NOT_SENT`` if it has
    not. ``turn_seconds``: how long the command has waited for its turn after ``started_seconds``. ``slow``: the
    threshold that the duration is compared with. ``streamed_bytes``: size of the reply as far as it was streamed.
    """

    __slots__ = ("_times", "sent_seconds", "slow", "started_seconds", "streamed_bytes", "turn_seconds")

    def __init__(self, slow: SlowThreshold) -> None:
        self.started_seconds = time.perf_counter()
        self.turn_seconds = 0.0
        self.streamed_bytes = 0
        self.sent_seconds = 0.0
        self.slow = slow
        self._times: Times | None = None

    def times(self) -> Times:
        """Where the time of this command has gone."""
        times = self._times
        if times is None:
            times = self._times = Times(records_spans=self.slow.records_spans)
        return times

    @property
    def known_times(self) -> Times | None:
        """As ``times``; ``None`` if nothing was recorded."""
        return self._times

    def waited_for_turn(self, since_seconds: float) -> None:
        """The command has waited for its turn since then, before this clock was started."""
        waited_seconds = self.started_seconds - since_seconds
        if waited_seconds > 0.0:
            self.turn_seconds = waited_seconds
            self.started_seconds = since_seconds

    def queued(self, since_seconds: float) -> None:
        """The command has waited for its turn since then."""
        self.times().wait(WaitKind.QUEUE, since_seconds)

    def sent(self) -> None:
        """The backend has the command from now on, until its end."""
        self.not_sent()
        self.sent_seconds = time.perf_counter()

    def not_sent(self) -> None:
        """The backend does not have the command, or no longer."""
        since_seconds = self.sent_seconds
        if 0.0 < since_seconds < NOT_SENT:
            self.times().was_at_backend(since_seconds)
        self.sent_seconds = NOT_SENT
