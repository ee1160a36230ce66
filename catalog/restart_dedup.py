"""Rows that an earlier process wrote, so that a statement that is sent again is not written twice (W102).

The record of retryable writes dies with the process. A driver whose answer was lost with it sends the statement
again, to the process that was started anew, within the time in which it seeks a server. For that long after the
start, the first statements of every session are sought by their ``_id`` in the stored buckets that could hold
them, before they are staged; what is there was written.

What is not promised: measurements without ``_id``, commands of the earlier process that the backend has yet to
execute, and drivers that retry later or through another proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from catalog.errors import BackendUnavailable, CommandError
from catalog.kernel import Measurement
from catalog.open_bucket import CollectionBuckets
from catalog.ports import Acknowledgement, Applied, BucketStore, Clock, WriteConcern

ASKED_AT_ONCE = 1_000
"""Measurements sought with one query, as soon as so many wait."""

NOTHING_UPDATE = (
    b"\x36\0\0\0\x03q\0\x16\0\0\0\x07_id\0" + bytes(12) + b"\0\x03u\0\x15\0\0\0\x03$unset\0\x08\0\0\0\x0ax\0\0\0\0"
)
"""``{q: {_id: ObjectId("0…0")}, u: {$unset: {x: null}}}``: changes nothing, and waits for its write concern."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """``ids``: the ``_id`` of rows that are there, as element values; ``acknowledgement`` is of their write concern."""

    ids: frozenset[bytes]
    acknowledgement: Acknowledgement | None = None


NOTHING_RECALLED = Recalled(frozenset())

Answer: TypeAlias = Callable[[Recalled | CommandError], None]


@dataclass(frozen=True, slots=True)
class _Question:
    measurements: Sequence[Measurement]
    write_concern: WriteConcern
    answer: Answer


class RestartDedup:
    """Seeks rows of an earlier process; questions that come while one query is under way share the next."""

    def __init__(
        self,
        store: BucketStore,
        clock: Clock,
        recall_seconds: float,
        patience_seconds: float,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """``recall_seconds``: how long from now on retries of an earlier process' statements are to be expected."""
        self._store = store
        self._clock = clock
        self._until_seconds = clock.monotonic_seconds() + recall_seconds
        self._patience_seconds = patience_seconds
        self._spawn = spawn
        self._questions: dict[CollectionBuckets, list[_Question]] = {}

    def is_needed(self, *, first_of_session: bool) -> bool:
        """Whether a statement may have been written by an earlier process."""
        return first_of_session and self._clock.monotonic_seconds() < self._until_seconds

    def ask(
        self,
        buckets: CollectionBuckets,
        measurements: Sequence[Measurement],
        write_concern: WriteConcern,
        answer: Answer,
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
        wanted = {(each.meta, each.time_ms): None for question in asked for each in question.measurements}
        try:
            ids = await self._store.stored_row_ids(buckets.collection, tuple(wanted), deadline_seconds)
            confirmed = await self._confirm(buckets, asked, ids, deadline_seconds)
        except CommandError as error:
            while asked:
                asked.pop(0).answer(error)
            return
        while asked:
            question = asked.pop(0)
            question.answer(_recalled(question, ids, confirmed[question.write_concern]))

    async def _confirm(
        self, buckets: CollectionBuckets, asked: list[_Question], ids: frozenset[bytes], deadline_seconds: float
    ) -> dict[WriteConcern, Acknowledgement | None]:
        """What is there may not be where the write concern wants it: wait for that as the write would have."""
        confirmed: dict[WriteConcern, Acknowledgement | None] = {}
        for question in asked:
            write_concern = question.write_concern
            if write_concern in confirmed:
                continue
            confirmed[write_concern] = None
            if write_concern.raw and ids:
                outcome = await self._store.update(
                    buckets.collection, [NOTHING_UPDATE], write_concern, deadline_seconds
                )
                if not isinstance(outcome, Applied):
                    raise BackendUnavailable(outcome.error.message, code=outcome.error.code)
                confirmed[write_concern] = outcome.acknowledgement
        return confirmed


def _recalled(question: _Question, ids: frozenset[bytes], acknowledgement: Acknowledgement | None) -> Recalled:
    mine = {each.columns.get(b"_id", b"") for each in question.measurements}
    return Recalled(ids & mine, acknowledgement)
