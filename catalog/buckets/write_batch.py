"""Write batches and their commit rights (W60-W66).

A batch collects the measurements that concurrent writers stage for one bucket. ``TRANSITIONS`` has its states and the
events that change them; any other event is an internal error::

    OPEN      accepts measurements; no writer has claimed it yet
    CLAIMED   a writer holds the commit rights; it still accepts measurements (W63)
    PREPARED  its rows have numbers, it accepts no more, and a backend command carries it (W64)
    FINISHED  the backend has acknowledged it (W65)
    ABORTED   it will not be written: its writers got an error, or its measurements were moved to other buckets

The claimant, the committer and the clearing of buckets all use this table, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from catalog.errors import CommandError, InvariantViolated
from catalog.identity import Identity
from catalog.ports import Acknowledgement

if TYPE_CHECKING:
    from catalog.buckets.open_bucket import Bucket
    from catalog.kernel import Measurement


class BatchState(IntEnum):
    """The state of a batch."""

    OPEN = 0
    CLAIMED = 1
    PREPARED = 2
    FINISHED = 3
    ABORTED = 4


class BatchEvent(IntEnum):
    """An event that changes the state of a batch."""

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
"""Constants, because looking up members of an enumeration is slow."""


class CombineKey(NamedTuple):
    """Writers with equal keys may share a batch (W70).

    ``write_concern`` is the raw document as in ``WriteConcern``; ``identity`` is empty without access control. ``half``
    tells the halves of refused batches apart, which nobody else joins; 0 for all others.
    """

    write_concern: bytes
    identity: Identity
    half: int = 0


class Writer(Protocol):
    """Waits for the results of its measurements; gets exactly one for each index that it has staged."""

    def settle(
        self, indexes: Sequence[int], error: CommandError | None, acknowledgement: Acknowledgement | None
    ) -> None:
        """These measurements are stored (``error`` is ``None``) or failed. Must not raise."""
        ...

    def doubt(self, indexes: Sequence[int], error: CommandError, now_seconds: float) -> DoubtfulWriter | None:
        """At the deadline, it is unknown whether these measurements are stored.

        A writer that needs the outcome returns the object whose ``settle`` will get it; for any other, this is the end.
        """
        ...

    def origins(self) -> Sequence[object]:
        """The commands that wait for the results, for observers of commits (``catalog.commit.commit_observer``)."""
        ...


class DoubtfulWriter(Writer, Protocol):
    """Waits for the outcome of a write in doubt, which ``settle`` gets."""

    @property
    def is_wanted(self) -> bool:
        """Whether a client still waits for the write; otherwise, a write that was not applied is not repeated."""
        ...

    def expire(self, now_seconds: float, error: CommandError) -> None:
        """Give the error to clients whose deadline has passed."""
        ...

    def lose(self, error: CommandError) -> None:
        """The outcome will never be known."""
        ...


class _Settled:
    """Takes the place of a writer that has its result already."""

    __slots__ = ()

    def settle(
        self, indexes: Sequence[int], error: CommandError | None, acknowledgement: Acknowledgement | None
    ) -> None:
        """Does nothing."""

    def doubt(self, indexes: Sequence[int], error: CommandError, now_seconds: float) -> DoubtfulWriter | None:
        """Does nothing."""

    def origins(self) -> Sequence[object]:
        return ()


SETTLED: Writer = _Settled()


StagedRow: TypeAlias = "tuple[Measurement, Writer, int]"
"""A measurement, its writer, and the index by which the writer identifies it."""


def halves(rows: Sequence[StagedRow]) -> Sequence[Sequence[StagedRow]]:
    """These rows in two parts of about the same size that begin with different writers; empty if there is one only."""
    borders = [number for number in range(1, len(rows)) if rows[number][1] is not rows[number - 1][1]]
    if not borders:
        return ()
    middle = min(borders, key=lambda number: abs(2 * number - len(rows)))
    return rows[:middle], rows[middle:]


class WriteBatch:
    """Measurements for one bucket that are committed together, and their writers."""

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
        """When the first of its measurements was staged."""
        self.moves = 0
        """How often one of its measurements was moved because its bucket has changed."""
        self.state: BatchState = _OPEN
        self.bulk = False
        """Whether only large inserts wait for it, so that it uses the lane for these."""
        self.base = -1
        """The number of its first row in the document that holds it; 0 in a new document."""
        self.stored_id = b""
        """The id of the document that holds it, once prepared: the bucket's, or a part's."""
        self.measurements: list[Measurement] = []
        self.shares: list[tuple[Writer, list[int]]] = []
        self.doubtful: list[DoubtfulWriter] | None = None
        """The writers that wait for the outcome of a batch in doubt; ``None`` if it is not in doubt."""

    def add(self, measurement: Measurement, writer: Writer, index: int) -> None:
        """Stage one measurement of ``writer``, which identifies it by ``index``."""
        self.measurements.append(measurement)
        shares = self.shares
        if shares and shares[-1][0] is writer:
            shares[-1][1].append(index)
        else:
            shares.append((writer, [index]))

    def rows(self) -> list[StagedRow]:
        """The measurements whose writers wait for a result."""
        rows: list[StagedRow] = []
        measurements = iter(self.measurements)
        for writer, indexes in self.shares:
            for index in indexes:
                measurement = next(measurements)
                if writer is not SETTLED:
                    rows.append((measurement, writer, index))
        return rows

    def claim(self) -> bool:
        """Take the commit rights; true for the first caller (W63)."""
        if self.state is not _OPEN:
            return False
        self.state = _CLAIMED
        return True

    def advance(self, event: BatchEvent) -> None:
        """Change the state; raises ``InvariantViolated`` for a transition that is not in the table."""
        state = TRANSITIONS[self.state].get(event)
        if state is None:
            raise InvariantViolated(f"a write batch in state {self.state.name} cannot {event.name}")
        self.state = state

    def settle(self, error: CommandError | None, acknowledgement: Acknowledgement | None) -> None:
        """Give every writer its result, once."""
        shares, self.shares = self.shares, []
        for writer, indexes in shares:
            writer.settle(indexes, error, acknowledgement)

    def doubt(self, error: CommandError, now_seconds: float) -> bool:
        """The outcome is unknown at the deadline; returns whether a writer waits for it to be resolved."""
        doubtful: list[DoubtfulWriter] = []
        shares: list[tuple[Writer, list[int]]] = []
        for writer, indexes in self.shares:
            waits = writer.doubt(indexes, error, now_seconds)
            shares.append((SETTLED if waits is None else waits, indexes))
            if waits is not None:
                doubtful.append(waits)
        self.shares = shares
        self.doubtful = doubtful
        return bool(doubtful)

    def leave(self, writers: Container[Writer]) -> None:
        """These have their results already."""
        self.shares = [(SETTLED if writer in writers else writer, indexes) for writer, indexes in self.shares]

    def unwanted(self, error: CommandError) -> None:
        """The batch was not written: settle the writers that no longer want it; it is placed again for the others."""
        shares: list[tuple[Writer, list[int]]] = []
        wanted = {id(writer) for writer in self.doubtful or () if writer.is_wanted}
        for writer, indexes in self.shares:
            if id(writer) in wanted:
                shares.append((writer, indexes))
            else:
                writer.settle(indexes, error, None)
                shares.append((SETTLED, indexes))
        self.shares = shares
