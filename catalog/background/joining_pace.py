"""How much time joins take: the more parts wait, the larger a share of it, and all of it once joins are behind.

A server that carries a join out in its commit does nothing else meanwhile. There, each commit is followed by a gap, so
that all writers who had to wait go first, and wait for one commit at most; the gaps give joins their share of the time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from catalog.growth.growth import BucketGrowth
from catalog.ports import Clock


@dataclass(frozen=True, slots=True)
class JoiningOptions:
    """When parts are joined, and how.

    A bucket's parts become a run when their segment has ended (``catalog.growth.segments``), or when there are ``many``
    of them, because reads of many small buckets are slow. The whole bucket is joined after ``idle_seconds`` without
    commits, and when it takes no more rows. Joins are prepared for ``preparing_seconds``, or ``ahead_seconds`` where
    there are gaps between commits, and then committed for ``window_seconds`` while readers wait; ``workers``:
    concurrent steps; ``group_parts``, ``group_rows``: limits of one step, which are smaller where commits take long
    (``catalog.background.step_size``). While parts are made, passes take ``gentle_seconds`` at most, and joins have
    this ``share`` of the time, so that bursts are stored quickly; if more of what may wait does
    (``Backlog.fullness``), that share, so that a long load is joined as fast as it is stored. While joins are behind
    (``catalog.growth.backlog``) and when no more parts are made, passes take ``slice_seconds`` at most, and the next
    one follows after ``breath_seconds`` if there was more to join, otherwise after ``interval_seconds``. Where gaps
    follow commits, passes take ``slice_seconds`` at most while parts are made, too, and the gaps leave joins their
    share, or ``share_behind``. A failed join is tried ``attempts`` times more, after ``pause_seconds``, which double
    each time. ``compress``: the last join of a bucket writes its compressed form (W6).
    """

    many: int = 256
    idle_seconds: float = 2.0
    interval_seconds: float = 0.1
    window_seconds: float = 0.01
    preparing_seconds: float = 0.1
    ahead_seconds: float = 0.02
    breath_seconds: float = 0.01
    group_parts: int = 512
    group_rows: int = 8_000
    workers: int = 2
    slice_seconds: float = 0.2
    gentle_seconds: float = 0.05
    share: float = 0.1
    share_behind: float = 0.75
    patience_seconds: float = 10.0
    attempts: int = 6
    pause_seconds: float = 0.25
    compress: bool = False


class JoiningPace(ABC):
    """The lengths of passes, and of the pauses between them; ``pace_of`` chooses the one for a backend."""

    prepares_ahead: ClassVar[bool]
    """Whether joins are prepared while others are committed, as a server that does nothing else has to be fed."""

    def __init__(self, options: JoiningOptions, growth: BucketGrowth, clock: Clock) -> None:
        self._options = options
        self._growth = growth
        self._clock = clock

    @property
    @abstractmethod
    def preparing_seconds(self) -> float:
        """How long to prepare joins, before those that are ready are committed."""

    @abstractmethod
    def pass_seconds(self) -> float:
        """Maximum length of the next pass."""

    @abstractmethod
    def pause_after(self, busy_seconds: float, *, has_more: bool) -> float:
        """Seconds until the next pass, after one of ``busy_seconds``; ``has_more``: whether it has left something."""

    @abstractmethod
    def gap_after(self, commit_seconds: float) -> float:
        """Seconds until the next commit, after one or some that took so long; 0 where nobody has waited for them."""

    def _share(self) -> float:
        """Of the time, while parts are made."""
        return max(self._options.share, self._growth.backlog.fullness)

    def _is_gentle(self) -> bool:
        """Whether parts are being made, and not too many wait."""
        if self._growth.backlog.is_behind:
            return False
        return self._clock.monotonic_seconds() - self._growth.committed_at_seconds <= self._options.idle_seconds


class PausingPace(JoiningPace):
    """Pauses between short passes leave the rest of the time to others, who go on during a commit."""

    prepares_ahead = False

    @property
    def preparing_seconds(self) -> float:
        return self._options.preparing_seconds

    def pass_seconds(self) -> float:
        return self._options.gentle_seconds if self._is_gentle() else self._options.slice_seconds

    def pause_after(self, busy_seconds: float, *, has_more: bool) -> float:
        options = self._options
        if not self._is_gentle():
            return options.breath_seconds if has_more else options.interval_seconds
        share = self._share()
        follows = has_more and share > options.share
        least_seconds = options.breath_seconds if follows else options.interval_seconds
        return max(least_seconds, busy_seconds * (1 / share - 1))

    def gap_after(self, commit_seconds: float) -> float:
        return 0.0


class GapsPace(JoiningPace):
    """Gaps between commits leave it to them, for they have to wait during each one."""

    prepares_ahead = True

    @property
    def preparing_seconds(self) -> float:
        return self._options.ahead_seconds

    def pass_seconds(self) -> float:
        return self._options.slice_seconds

    def pause_after(self, busy_seconds: float, *, has_more: bool) -> float:
        options = self._options
        if has_more:
            return options.breath_seconds
        # The more parts wait, the sooner some of them are due again.
        return max(options.breath_seconds, options.interval_seconds * (1 - self._growth.backlog.fullness))

    def gap_after(self, commit_seconds: float) -> float:
        share = self._share() if self._is_gentle() else self._options.share_behind
        return commit_seconds * (1 / share - 1)


def pace_of(options: JoiningOptions, growth: BucketGrowth, clock: Clock) -> JoiningPace:
    """The pace for the backend."""
    # Parts are sealed where commits carry joins out; that is decided once, before there are any.
    return (GapsPace if growth.is_sealed else PausingPace)(options, growth, clock)
