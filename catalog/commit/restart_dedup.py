"""Detects statements that another process has written, so that a retry does not write them twice (W102).

The record of retryable writes is lost when the process ends. A driver that has lost the reply sends the statement to
the new process, within its server selection timeout. For that time after the start, the first statements of every
session are looked up in the stored buckets before they are staged.

``_id`` is not unique, so whole rows are compared, bit for bit. Rows do not count if this process has written them, if
they were stored long before it started, or if they were found for another statement already. If as many equal rows are
left as the statement has, it is a retry. More rows were made by several equal statements, so they prove nothing. Fewer
rows cannot be those of one statement, whose equal rows are in one bucket and are stored together. In both cases the
statement is staged, because what is acknowledged must be stored.

The same look-up finds what a proxy has written that cannot be asked, because it was killed, or does not answer
(``proxy.peers``), and what clients have written to a database where the proxy's account had no rights yet, so that
their statements were relayed without being recorded. Then all rows count that were stored in these minutes.

Not covered: measurements without ``_id``, those whose meta value was changed in between, commands of the earlier
process that the backend has yet to execute, and drivers that retry later. A new statement whose rows equal, including
their times, those of a statement that was stored in these minutes is taken for its retry.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from catalog.bounded import remember
from catalog.commit.rows import digest_of, with_id
from catalog.errors import BackendUnavailable, CommandError
from catalog.kernel import Measurement
from catalog.namespaces import VirtualCollection
from catalog.ports import Acknowledgement, Applied, BulkOutcome, Clock, WriteConcern

ASKED_AT_ONCE = 1_000
"""Number of waiting measurements from which a query takes no further question."""

MOST_DOUBTED = 1_000
"""Maximum number of databases that are doubted at a time."""

CLAIMED_LIMIT = 100_000
"""Maximum number of recorded rows that were found for a statement."""

NOTHING_UPDATE = (
    b"\x36\0\0\0\x03q\0\x16\0\0\0\x07_id\0" + bytes(12) + b"\0\x03u\0\x15\0\0\0\x03$unset\0\x08\0\0\0\x0ax\0\0\0\0"
)
"""``{q: {_id: ObjectId("0…0")}, u: {$unset: {x: null}}}``: changes nothing, and waits for its write concern."""


@dataclass(frozen=True, slots=True)
class Found:
    """The part of a statement's measurements that is stored.

    ``written``: their positions; ``acknowledgement``: the result of their write concern, ``None`` if none is stored or
    there is no write concern.
    """

    written: frozenset[int]
    acknowledgement: Acknowledgement | None = None


OnFound: TypeAlias = Callable[[Found | CommandError], None]


@dataclass(frozen=True, slots=True)
class _Question:
    measurements: Sequence[Measurement]
    write_concern: WriteConcern
    answer: OnFound


class StoredRows(Protocol):
    """The part of ``BucketStore`` that is needed here; see there."""

    async def stored_rows(
        self, collection: VirtualCollection, measurements: Sequence[Measurement], deadline_seconds: float
    ) -> Mapping[bytes, int]:
        """See ``BucketStore``; raises ``CommandError``."""
        ...

    async def earlier_rows(
        self,
        collection: VirtualCollection,
        measurements: Sequence[Measurement],
        window_seconds: float,
        deadline_seconds: float,
        *,
        until_now: bool = False,
    ) -> Mapping[bytes, int]:
        """See ``BucketStore``; raises ``CommandError``."""
        ...

    async def update(
        self,
        collection: VirtualCollection,
        statements: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
    ) -> BulkOutcome:
        """Only called with ``NOTHING_UPDATE``."""
        ...


class RestartDedup:
    """Looks up rows of an earlier process; questions that arrive during a query share the next one."""

    def __init__(
        self,
        store: StoredRows,
        clock: Clock,
        window_seconds: float,
        patience_seconds: float,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """``window_seconds``: how long after the start retries of earlier statements may arrive."""
        self._store = store
        self._clock = clock
        self.window_seconds = window_seconds
        self._until_seconds = clock.monotonic_seconds() + window_seconds
        self._patience_seconds = patience_seconds
        self._spawn = spawn
        self._questions: dict[tuple[VirtualCollection, bool], list[_Question]] = {}
        """By collection, and whether all rows of the last minutes count."""
        self._claimed: Counter[bytes] = Counter()
        """Rows that were found for a statement, by collection and digest."""
        self._doubted: OrderedDict[str, float] = OrderedDict()
        """Until when databases are doubted."""

    def doubt(self, database: str) -> None:
        """Statements for this database were not recorded until now: those that follow may have been executed."""
        remember(self._doubted, database, self._clock.monotonic_seconds() + self.window_seconds, MOST_DOUBTED)

    def _is_doubted(self, collection: VirtualCollection) -> bool:
        database = collection.namespace.database
        until_seconds = self._doubted.get(database)
        if until_seconds is None:
            return False
        if self._clock.monotonic_seconds() < until_seconds:
            return True
        del self._doubted[database]
        return False

    def is_needed(self, collection: VirtualCollection, *, first_of_session: bool) -> bool:
        """Whether a statement that is not recorded may have been executed, not by this process or not recorded."""
        if self._doubted and self._is_doubted(collection):
            return True
        return first_of_session and self._clock.monotonic_seconds() < self._until_seconds

    def ask(
        self,
        collection: VirtualCollection,
        measurements: Sequence[Measurement],
        write_concern: WriteConcern,
        answer: OnFound,
        *,
        until_now: bool = False,
    ) -> None:
        """``answer`` is called once, with the result or an error.

        ``until_now``: rows count that were stored at any time in the window before now, not only before this process
        has written to the collection.
        """
        until_now = until_now or self._is_doubted(collection)
        question = _Question(measurements, write_concern, answer)
        waiting = self._questions.get((collection, until_now))
        if waiting is not None:
            waiting.append(question)
            return
        self._questions[collection, until_now] = [question]
        self._spawn(self._run(collection, until_now))

    async def _run(self, collection: VirtualCollection, until_now: bool) -> None:
        asked: list[_Question] = []
        try:
            while waiting := self._questions[collection, until_now]:
                count = 0
                while waiting and count < ASKED_AT_ONCE:
                    asked.append(waiting.pop(0))
                    count += len(asked[-1].measurements)
                await self._find(collection, asked, until_now)
        finally:
            for question in (*asked, *self._questions.pop((collection, until_now))):
                question.answer(CommandError(1, "internal error while looking up rows of another process"))

    async def _find(self, collection: VirtualCollection, asked: list[_Question], until_now: bool) -> None:
        """Answer each question and remove it from ``asked``."""
        deadline_seconds = self._clock.monotonic_seconds() + self._patience_seconds
        try:
            free = await self._unaccounted(collection, asked, deadline_seconds, until_now)
            confirmed: dict[WriteConcern, Acknowledgement | None] = {}
            while asked:
                written = _written(asked[0], free)
                write_concern = asked[0].write_concern
                if written and write_concern not in confirmed:
                    confirmed[write_concern] = await self._confirm(collection, write_concern, deadline_seconds)
                for digest, positions in written.items():
                    free[digest] -= len(positions)
                    self._claim(_name(collection) + digest, len(positions))
                found = frozenset(each for positions in written.values() for each in positions)
                asked.pop(0).answer(Found(found, confirmed[write_concern] if found else None))
        except CommandError as error:
            while asked:
                asked.pop(0).answer(error)

    async def _unaccounted(
        self, collection: VirtualCollection, asked: Sequence[_Question], deadline_seconds: float, until_now: bool
    ) -> Counter[bytes]:
        """The number of stored rows, by digest, that may have been written by these statements."""
        sought: dict[bytes, Measurement] = {}
        for question in asked:
            for position in with_id(question.measurements):
                measurement = question.measurements[position]
                sought.setdefault(digest_of(measurement), measurement)
        stored = await self._store.stored_rows(collection, tuple(sought.values()), deadline_seconds)
        there = [measurement for digest, measurement in sought.items() if stored.get(digest)]
        if not there:
            return Counter()
        earlier = await self._store.earlier_rows(
            collection, there, self.window_seconds, deadline_seconds, until_now=until_now
        )
        return Counter({digest: count - self._claimed[_name(collection) + digest] for digest, count in earlier.items()})

    def _claim(self, row: bytes, count: int) -> None:
        if len(self._claimed) >= CLAIMED_LIMIT:
            del self._claimed[next(iter(self._claimed))]
        self._claimed[row] += count

    async def _confirm(
        self, collection: VirtualCollection, write_concern: WriteConcern, deadline_seconds: float
    ) -> Acknowledgement | None:
        """Wait for the write concern, which stored rows may not meet yet, with a write that changes nothing."""
        if not write_concern.raw:
            return None
        outcome = await self._store.update(collection, [NOTHING_UPDATE], write_concern, deadline_seconds)
        if not isinstance(outcome, Applied):
            raise BackendUnavailable(outcome.error.message, code=outcome.error.code)
        return outcome.acknowledgement


def _written(question: _Question, free: Mapping[bytes, int]) -> dict[bytes, list[int]]:
    """The digests of rows that were written, with the rows' positions in the statement."""
    by_row: dict[bytes, list[int]] = {}
    for position in with_id(question.measurements):
        by_row.setdefault(digest_of(question.measurements[position]), []).append(position)
    return {digest: positions for digest, positions in by_row.items() if free.get(digest) == len(positions)}


def _name(collection: VirtualCollection) -> bytes:
    return collection.uuid or str(collection.namespace).encode()
