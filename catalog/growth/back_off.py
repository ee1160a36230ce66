"""A state that lasts for some time, and longer if it comes back soon after its end."""

from __future__ import annotations


class BackOff:
    """While it is on, something that has proved too expensive is not tried.

    It lasts ``first_seconds``, then twice as long each time that it begins again within its own length after its end,
    up to ``longest_seconds``.
    """

    __slots__ = ("_first_seconds", "_longest_seconds", "_seconds", "_until_seconds")

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self._first_seconds = first_seconds
        self._longest_seconds = longest_seconds
        self._seconds = 0.0
        self._until_seconds = 0.0

    def begin(self, now_seconds: float) -> None:
        """Begin; nothing changes if it is on."""
        if self.is_on(now_seconds):
            return
        is_again = now_seconds < self._until_seconds + self._seconds
        self._seconds = min(2 * self._seconds, self._longest_seconds) if is_again else self._first_seconds
        self._until_seconds = now_seconds + self._seconds

    def is_on(self, now_seconds: float) -> bool:
        """Whether its time is not over."""
        return now_seconds < self._until_seconds
