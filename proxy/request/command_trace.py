"""The span of a command, and the group commits that have carried its measurements."""

from __future__ import annotations

import time
from typing import Final

from proxy.observe.spans import Span

MOST_COMMITS: Final = 16
"""Commits of one insert that are recorded."""


class CommitTrace:
    """The span of a group commit, and when the backend had it: 0 as long as that is not known."""

    __slots__ = ("answered_seconds", "sent_seconds", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.sent_seconds = 0.0
        self.answered_seconds = 0.0


class CommandTrace:
    """The span of a command. ``has_ended``: nothing is added any more."""

    __slots__ = ("_offset_ns", "commits", "has_ended", "span")

    def __init__(self, span: Span, offset_ns: int) -> None:
        """``offset_ns``: see ``clock_offset_ns``."""
        self.span = span
        self.commits: list[CommitTrace] = []
        self.has_ended = False
        self._offset_ns = offset_ns

    def at_ns(self, seconds: float) -> int:
        """A time of ``time.perf_counter`` since 1970."""
        return round(seconds * 1e9) + self._offset_ns

    def committed_by(self, commit: CommitTrace) -> None:
        """Some of its measurements are in this commit, which refers to this span, too."""
        if len(self.commits) < MOST_COMMITS:
            self.commits.append(commit)
            self.span.link(commit.span)


def clock_offset_ns() -> int:
    """What must be added to a time of ``time.perf_counter`` to get the time since 1970."""
    return time.time_ns() - time.perf_counter_ns()
