"""Rows that an earlier process wrote, so that a statement that is sent again is not written twice (W102).

The record of retryable writes dies with the process. A driver whose answer was lost with it sends the statement
again, to the process that was started anew, within the time in which it seeks a server. For that long after the
start, the first statements of every session are sought in the stored buckets before they are staged.

What is found there need not be of this statement. ``_id`` is not unique, so whole rows are compared, bit for bit; and
rows count only as far as nothing else accounts for them: neither this process wrote them, nor were they there long
before it started, nor were they found for another statement already. What is left is of a retry when it is exactly as
many equal rows as the statement has. More are rows that several statements made equal, so that equality proves
nothing; fewer are not what one statement leaves, whose equal rows share a bucket and are stored together. In both
cases the statement is staged: what is acknowledged must be there.

What is not promised: measurements without ``_id``, commands of the earlier process that the backend has yet to
execute, and drivers that retry later or through another proxy. And what nothing tells apart: a new statement with
exactly the rows, time and all, that were stored in these minutes is taken for the retry of that one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from catalog.errors import BackendUnavailable, CommandError
from catalog.kernel import Measurement
from catalog.namespaces import VirtualCollection
from catalog.open_bucket import CollectionBuckets
from catalog.ports import Acknowledgement, Applied, BucketStore, Clock, WriteConcern
from catalog.rows import digest_of, with_id

ASKED_AT_ONCE = 1_000
"""Measurements sought together, as soon as so many wait."""

CLAIMED_LIMIT = 100_000
"""So many rows that were found for a statement are kept; all of them in the first minutes."""

NOTHING_UPDATE = (
    b"\x36\0\0\0\x03q\0\x16\0\0\0\x07_id\0" + bytes(12) + b"\0\x03u\0\x15\0\0\0\x03$unset\0\x08\0\0\0\x0ax\0\0\0\0"
)
"""``{q: {_id: ObjectId("0…0")}, u: {$unset: {x: null}}}``: changes nothing, and waits for its write concern."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is stored of a statement.

    ``written``: the positions of measurements that are there; ``acknowledgement``: that their write concern is met,
    ``None`` if none is there.
    """

    written: frozenset[int]
    acknowledgement: Acknowledgement | None = None


OnFound: TypeAlias = Callable[[Found | CommandError], None]


@dataclass(frozen=True, slots=True)
class _Question:
    measurements: Sequence[Measurement]
    write_concern: WriteConcern
    answer: OnFound


class RestartDedup:
    """Seeks rows of an earlier process; questions that come while one query is under way share the next."""

    def __init__(
        self,
        store: BucketStore,
        clock: Clock,
        window_seconds: float,
        patience_seconds: float,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """``window_seconds``: how long from now on retries of an earlier process' statements are to be expected."""
        self._store = store
        self._clock = clock
        self._window_seconds = window_seconds
        self._until_seconds = clock.monotonic_seconds() + window_seconds
        self._patience_seconds = patience_seconds
        self._spawn = spawn
        self._questions: dict[CollectionBuckets, list[_Question]] = {}
        self._claimed: Counter[bytes] = Counter()
        """Rows that were found for a statement, by collection and digest."""

    def is_needed(self, *, first_of_session: bool) -> bool:
        """Whether a statement may have been written by an earlier process."""
        return first_of_session and self._clock.monotonic_seconds() < self._until_seconds

    def ask(
        self,
        buckets: CollectionBuckets,
        measurements: Sequence[Measurement],
        write_concern: WriteConcern,
        answer: OnFound,
    ) -> None:
        """``answer`` is called once: with what is there, or with why that could not be found out."""
        question = _Question(measurements, write_concern, answer)
        waiting = self._questions.get(buckets)
        if waiting is not None:
            waiting.append(question)
            return
        self._questions[buckets] = [question]
        self._spawn(self._run(buckets))

    async def _run(self, buckets: CollectionBuckets) -> None:
        asked: list[_Question] = []
        try:
            while waiting := self._questions[buckets]:
                count = 0
                while waiting and count < ASKED_AT_ONCE:
                    asked.append(waiting.pop(0))
                    count += len(asked[-1].measurements)
                await self._find(buckets, asked)
        finally:
            for question in (*asked, *self._questions.pop(buckets)):
                question.answer(CommandError(1, "internal error while looking up rows of an earlier process"))

    async def _find(self, buckets: CollectionBuckets, asked: list[_Question]) -> None:
        """Answers each question of ``asked`` and takes it off."""
        deadline_seconds = self._clock.monotonic_seconds() + self._patience_seconds
        try:
            free = await self._unaccounted(buckets.collection, asked, deadline_seconds)
            confirmed: dict[WriteConcern, Acknowledgement | None] = {}
            while asked:
                written = _written(asked[0], free)
                write_concern = asked[0].write_concern
                if written and write_concern not in confirmed:
                    confirmed[write_concern] = await self._confirm(buckets.collection, write_concern, deadline_seconds)
                for digest, positions in written.items():
                    free[digest] -= len(positions)
                    self._claim(_name(buckets.collection) + digest, len(positions))
                found = frozenset(each for positions in written.values() for each in positions)
                asked.pop(0).answer(Found(found, confirmed[write_concern] if found else None))
        except CommandError as error:
            while asked:
                asked.pop(0).answer(error)

    async def _unaccounted(
        self, collection: VirtualCollection, asked: Sequence[_Question], deadline_seconds: float
    ) -> Counter[bytes]:
        """The rows that may be of these statements."""
        sought: dict[bytes, Measurement] = {}
        for question in asked:
            for position in with_id(question.measurements):
                measurement = question.measurements[position]
                sought.setdefault(digest_of(measurement), measurement)
        stored = await self._store.stored_rows(collection, tuple(sought.values()), deadline_seconds)
        there = [measurement for digest, measurement in sought.items() if stored.get(digest)]
        if not there:
            return Counter()
        earlier = await self._store.earlier_rows(collection, there, self._window_seconds, deadline_seconds)
        return Counter({digest: count - self._claimed[_name(collection) + digest] for digest, count in earlier.items()})

    def _claim(self, row: bytes, count: int) -> None:
        if len(self._claimed) >= CLAIMED_LIMIT:
            del self._claimed[next(iter(self._claimed))]
        self._claimed[row] += count

    async def _confirm(
        self, collection: VirtualCollection, write_concern: WriteConcern, deadline_seconds: float
    ) -> Acknowledgement | None:
        """What is there may not be where the write concern wants it: wait for that as the write would have."""
        if not write_concern.raw:
            return None
        outcome = await self._store.update(collection, [NOTHING_UPDATE], write_concern, deadline_seconds)
        if not isinstance(outcome, Applied):
            raise BackendUnavailable(outcome.error.message, code=outcome.error.code)
        return outcome.acknowledgement


def _written(question: _Question, free: Mapping[bytes, int]) -> dict[bytes, list[int]]:
    """The rows that were written, with their positions in the statement."""
    by_row: dict[bytes, list[int]] = {}
    for position in with_id(question.measurements):
        by_row.setdefault(digest_of(question.measurements[position]), []).append(position)
    return {digest: positions for digest, positions in by_row.items() if free.get(digest) == len(positions)}


def _name(collection: VirtualCollection) -> bytes:
    return collection.uuid or str(collection.namespace).encode()
