"""Write batches and their commit rights (W60-W66).

A batch collects the measurements that concurrent writers stage for one bucket. It lives through the states
of ``TRANSITIONS``; a pair that the table does not hold is a bug of ours::

    OPEN      takes measurements; nobody has asked for it yet
    CLAIMED   somebody holds the commit rights; it still takes measurements (W63)
    PREPARED  its rows have numbers, it takes no more, a backend command carries it (W64)
    FINISHED  the backend acknowledged it (W65)
    ABORTED   it will not be written: its writers have the error, or its measurements moved to other buckets

Everything that decides what happens to a batch is in this table, so that the claimant, the committer and the
clearing of buckets cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from catalog.errors import CommandError, InvariantViolated
from catalog.identity import Identity
from catalog.ports import Acknowledgement

if TYPE_CHECKING:
    from catalog.kernel import Measurement
    from catalog.open_bucket import Bucket


class BatchState(IntEnum):
    """Where a batch stands."""

    OPEN = 0
    CLAIMED = 1
    PREPARED = 2
    FINISHED = 3
    ABORTED = 4


class BatchEvent(IntEnum):
    """What may happen to a batch."""

    CLAIM = 0
    PREPARE = 1
    FINISH = 2
    ABORT = 3


TRANSITIONS: dict[BatchState, dict[BatchEvent, BatchState]] = {
    BatchState.OPEN: {BatchEvent.CLAIM: BatchState.CLAIMED, BatchEvent.ABORT: BatchState.ABORTED},
    BatchState.CLAIMED: {BatchEvent.PREPARE: BatchState.PREPARED, BatchEvent.ABORT: BatchState.ABORTED},
    BatchState.PREPARED: {BatchEvent.FINISH: BatchState.FINISHED, BatchEvent.ABORT: BatchState.ABORTED},
    BatchState.FINISHED: {},
    BatchState.ABORTED: {},
}


_OPEN: Final = BatchState.OPEN
_CLAIMED: Final = BatchState.CLAIMED
"""Members of an enumeration are slow to look up where every measurement passes."""


class CombineKey(NamedTuple):
    """Writers with equal keys may share a batch (W70).

    ``write_concern`` is the raw document as in ``WriteConcern``; ``identity`` is nobody where access control is off.
    """

    write_concern: bytes
    identity: Identity


class Writer(Protocol):
    """Somebody who waits for measurements of his; called exactly once for each index he staged."""

    def settle(
        self, indexes: Sequence[int], error: CommandError | None, acknowledgement: Acknowledgement | None
    ) -> None:
        """These measurements are stored (``error`` is ``None``) or failed. Must not raise."""
        ...

    def doubt(self, indexes: Sequence[int], error: CommandError, now_seconds: float) -> DoubtfulWriter | None:
        """It could not be found out in time whether these measurements are stored.

        A writer that needs the verdict returns who gets it, with one ``settle``; any other has settled now.
        """
        ...


class DoubtfulWriter(Writer, Protocol):
    """Somebody who waits for the verdict on a write whose outcome was in doubt: that is what it settles."""

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for it to be written; otherwise a write that did not happen stays undone."""
        ...

    def expire(self, now_seconds: float, error: CommandError) -> None:
        """Tell those whose time is over."""
        ...

    def lose(self, error: CommandError) -> None:
        """There will be no verdict."""
        ...


class _Told:
    """Stands in a share for a writer who has his answer already."""

    __slots__ = ()

    def settle(
        self, indexes: Sequence[int], error: CommandError | None, acknowledgement: Acknowledgement | None
    ) -> None:
        """Nobody listens."""

    def doubt(self, indexes: Sequence[int], error: CommandError, now_seconds: float) -> DoubtfulWriter | None:
        """Nobody listens."""


TOLD: Writer = _Told()


class WriteBatch:
    """Measurements for one bucket that are committed together, and who waits for them."""

    __slots__ = (
        "base",
        "bucket",
        "bulk",
        "doubtful",
        "key",
        "measurements",
        "moves",
        "shares",
        "staged_at_seconds",
        "state",
        "stored_id",
    )

    def __init__(self, bucket: Bucket, key: CombineKey, staged_at_seconds: float) -> None:
        self.bucket = bucket
        self.key = key
        self.staged_at_seconds = staged_at_seconds
        """When the first of its measurements came from a client."""
        self.moves = 0
        """How often a measurement of it had to leave a bucket that changed underneath."""
        self.state: BatchState = _OPEN
        self.bulk = False
        """Whether only large inserts wait for it, so that it goes behind what others wait for."""
        self.base = -1
        """The number of its first row in the document that holds it; 0 in a new document."""
        self.stored_id = b""
        """The id of the document that holds it, once prepared: the bucket's, or a part's."""
        self.measurements: list[Measurement] = []
        self.shares: list[tuple[Writer, list[int]]] = []
        self.doubtful: list[DoubtfulWriter] | None = None
        """Not ``None`` once the outcome was not found out in time: those who wait for the verdict."""

    def add(self, measurement: Measurement, writer: Writer, index: int) -> None:
        """Stage one measurement for ``writer``, who knows it as ``index``."""
        self.measurements.append(measurement)
        shares = self.shares
        if shares and shares[-1][0] is writer:
            shares[-1][1].append(index)
        else:
            shares.append((writer, [index]))

    def claim(self) -> bool:
        """Take the commit rights; true for the first who asks (W63)."""
        if self.state is not _OPEN:
            return False
        self.state = _CLAIMED
        return True

    def advance(self, event: BatchEvent) -> None:
        """Go on by the table; raises ``InvariantViolated`` for what it does not hold."""
        state = TRANSITIONS[self.state].get(event)
        if state is None:
            raise InvariantViolated(f"a write batch in state {self.state.name} cannot {event.name}")
        self.state = state

    def settle(self, error: CommandError | None, acknowledgement: Acknowledgement | None) -> None:
        """Tell every writer, once."""
        shares, self.shares = self.shares, []
        for writer, indexes in shares:
            writer.settle(indexes, error, acknowledgement)

    def doubt(self, error: CommandError, now_seconds: float) -> bool:
        """The outcome was not found out in time; whether a writer waits for the verdict."""
        doubtful: list[DoubtfulWriter] = []
        shares: list[tuple[Writer, list[int]]] = []
        for writer, indexes in self.shares:
            waits = writer.doubt(indexes, error, now_seconds)
            shares.append((TOLD if waits is None else waits, indexes))
            if waits is not None:
                doubtful.append(waits)
        self.shares = shares
        self.doubtful = doubtful
        return bool(doubtful)

    def unwanted(self, error: CommandError) -> None:
        """The verdict is that it was not written: it stays so, except for those who still wait for it."""
        shares: list[tuple[Writer, list[int]]] = []
        wanted = {id(writer) for writer in self.doubtful or () if writer.is_wanted}
        for writer, indexes in self.shares:
            if id(writer) in wanted:
                shares.append((writer, indexes))
            else:
                writer.settle(indexes, error, None)
                shares.append((TOLD, indexes))
        self.shares = shares
