"""A token bucket: how much is allowed now, of something that is limited per second."""

from __future__ import annotations


class Allowance:
    """Fills with ``per_second`` up to ``most``, and is full at first. The caller gives the time, in seconds."""

    __slots__ = ("_at_seconds", "_most", "_per_second", "_tokens")

    def __init__(self, per_second: float, most: float, now_seconds: float) -> None:
        self._per_second = per_second
        self._most = most
        self._tokens = most
        self._at_seconds = now_seconds

    def take(self, now_seconds: float, tokens: float = 1.0) -> bool:
        """Take ``tokens`` if there are as many; more than fit are allowed while it is full, and make it owe them."""
        self._fill(now_seconds)
        if self._tokens < min(tokens, self._most):
            return False
        self._tokens -= tokens
        return True

    def seconds_until(self, now_seconds: float, tokens: float = 1.0) -> float:
        """How long until ``take`` succeeds; 0 if it does now."""
        self._fill(now_seconds)
        return max(min(tokens, self._most) - self._tokens, 0.0) / self._per_second

    def is_full(self, now_seconds: float) -> bool:
        """Whether nothing is owed or was taken lately."""
        self._fill(now_seconds)
        return self._tokens >= self._most

    def _fill(self, now_seconds: float) -> None:
        self._tokens = min(self._most, self._tokens + (now_seconds - self._at_seconds) * self._per_second)
        self._at_seconds = now_seconds
