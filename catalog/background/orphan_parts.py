"""Joins parts that other processes have left (``catalog.parts``).

Those of a process that is certainly gone (``DepartedProcesses``) are joined soon. All others are joined only after
``COPIES_SECONDS``, the time for which a server may still execute a copy of an insert that was sent twice. By then, a
process that is still running has joined its parts itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from catalog.background.reader_barrier import ReaderBarrier, committed_alone
from catalog.background.reader_pauses import ReaderPauses
from catalog.buckets.open_bucket import CollectionBuckets
from catalog.catalog import BucketCatalog
from catalog.errors import (
    NAMESPACE_NOT_FOUND,
    UNAUTHORIZED,
    WRITE_CONFLICT,
    BackendUnavailable,
    CommandError,
)
from catalog.parts import PREFIX_BYTES, SEGMENT_AT, IdRange, bucket_key, may_be_part
from catalog.ports import COPIES_SECONDS, BucketStore, Clock, Span

GONE_SECONDS = 5.0
"""Delay after parts were found; by then, their process is known if it still runs."""
PAUSE_SECONDS = 1.0
"""Pause after a step that failed, or that readers prevented."""
ATTEMPTS = 10
"""Maximum number of attempts at a step; those that fail because of locks do not count."""
SWEPT_SPANS = 8
"""How far back, in bucket spans, the search for parts goes."""
GROUP_PARTS = 512
"""Maximum number of documents of one step, unless one bucket has more."""
DIVIDED_AT_ONCE = 8
"""Groups of which one pass looks for those of processes that are gone."""
PASS_SECONDS = 0.05
"""Duration of one pass; the step in progress is completed."""
PATIENCE_SECONDS = 10.0
"""Time limit of one step at the backend."""

Merge = Callable[[Sequence[bytes]], bytes]


class DepartedProcesses(Protocol):
    """The other processes."""

    @property
    def departures(self) -> int:
        """How many have gone."""
        ...

    @property
    def looks(self) -> int:
        """How many looks at the backend for other processes have begun."""
        ...

    def has_looked_since(self, looks: int) -> bool:
        """Whether a look has succeeded that began after the first ``looks``."""
        ...

    def has_gone(self, stored_id: bytes) -> bool:
        """Whether the process that made this id is certainly gone, and the backend executes nothing of it any more."""
        ...


class NobodyKnown:
    """Where other processes cannot be known; implements ``DepartedProcesses``."""

    departures = 0
    looks = 0

    def has_looked_since(self, looks: int) -> bool:
        return True

    def has_gone(self, stored_id: bytes) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class _Group:
    """Neighbouring buckets of other processes, which may have been killed or may still join their parts themselves.

    Too early, the server may still execute a copy of an insert that was sent twice, and store a part again whose rows
    have been joined.
    """

    found_seconds: float
    looks: int
    """The looks for other processes that had begun (``DepartedProcesses``)."""
    buckets: CollectionBuckets
    families: Sequence[Sequence[bytes]]
    """For each bucket the ids of its parts, in their order."""
    attempts: int = 0

    def halves(self) -> list[_Group]:
        """The same buckets in two groups, if there are several."""
        if len(self.families) == 1:
            return [self]
        middle = len(self.families) // 2
        return [replace(self, families=self.families[:middle]), replace(self, families=self.families[middle:])]


class _Groups:
    """What was found: groups of which some may be due soon, groups that are due later, and those that are due."""

    __slots__ = ("due", "found", "later", "pauses", "put_off")

    def __init__(self, clock: Clock) -> None:
        self.found: deque[_Group] = deque()
        self.later: deque[_Group] = deque()
        self.due: deque[_Group] = deque()
        self.put_off: deque[tuple[float, _Group]] = deque()
        """Due again at these times, the earliest first: readers were in the way."""
        self.pauses = ReaderPauses(clock, PAUSE_SECONDS)

    def known(self) -> set[tuple[bytes, bytes]]:
        """The collections and last ids of all buckets."""
        groups = (*self.found, *self.later, *self.due, *(group for _, group in self.put_off))
        return {(group.buckets.collection.uuid, ids[-1]) for group in groups for ids in group.families}

    def divide_again(self, looks: int) -> None:
        """A process has gone: some that are due later may be its own."""
        again = [replace(group, looks=looks) for group in (*self.later, *self.found)]
        self.found = deque(sorted(again, key=lambda group: group.found_seconds))
        self.later.clear()

    def become_due(self, others: DepartedProcesses, now_seconds: float) -> None:
        """Divide some groups into those of processes that are gone and others, and see what is due by now."""
        for _ in range(DIVIDED_AT_ONCE):
            if not self.found or now_seconds < self.found[0].found_seconds + GONE_SECONDS:
                break
            if not others.has_looked_since(self.found[0].looks):
                break
            group = self.found.popleft()
            are_gone = [others.has_gone(ids[0]) for ids in group.families]
            for queue, wanted in ((self.due, True), (self.later, False)):
                families = [ids for ids, gone in zip(group.families, are_gone, strict=True) if gone is wanted]
                if families:
                    queue.append(replace(group, families=families))
        while self.put_off and now_seconds >= self.put_off[0][0]:
            self.due.append(self.put_off.popleft()[1])
        while self.later and now_seconds >= self.later[0].found_seconds + COPIES_SECONDS:
            self.due.append(self.later.popleft())


class OrphanParts:
    """Searches the collections that this process writes to, and joins the parts that it finds.

    A collection is searched when this process begins to write to it, and when another process has gone.
    """

    def __init__(
        self,
        catalog: BucketCatalog,
        store: BucketStore,
        clock: Clock,
        readers: ReaderBarrier,
        merge: Callable[[CollectionBuckets], Merge],
        refused: Callable[[CommandError], None],
        noticed: Callable[[Exception], None],
    ) -> None:
        """``merge`` gives the function that makes one document of parts of a collection.

        ``refused`` is called if the account may not join; ``noticed``: see ``catalog.background.replacing.Forms``.
        """
        self._others: DepartedProcesses = NobodyKnown()
        self._noticed = noticed
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._readers = readers
        self._merge = merge
        self._refused = refused
        self._swept: set[bytes] = set()
        """UUIDs of the collections that were searched."""
        self._departures = 0
        self._groups = _Groups(clock)
        self._not_before_seconds = 0.0

    def link(self, others: DepartedProcesses) -> None:
        """Other processes are known from now on."""
        self._others = others

    async def sweep(self) -> int:
        """One pass; returns how many documents were joined."""
        now_seconds = self._clock.monotonic_seconds()
        if self._others.departures != self._departures:
            self._departures = self._others.departures
            self._swept.clear()
            self._groups.divide_again(self._others.looks)
        self._groups.become_due(self._others, now_seconds)
        joined = 0
        until_seconds = now_seconds + PASS_SECONDS
        while self._groups.due and self._not_before_seconds <= self._clock.monotonic_seconds() < until_seconds:
            joined += await self._join(self._groups.due.popleft())
        if self._clock.monotonic_seconds() >= self._not_before_seconds:
            await self._search()
        return joined

    async def _search(self) -> None:
        """Search one collection, if there is one to be searched."""
        known = self._catalog.collections()
        self._swept.intersection_update({buckets.collection.uuid for buckets in known})
        for buckets in known:
            if buckets.stored_until_ms is not None and buckets.collection.uuid not in self._swept:
                # Before the search, during which a process may go.
                self._swept.add(buckets.collection.uuid)
                await self._find(buckets)
                break

    async def _find(self, buckets: CollectionBuckets) -> None:
        """Find parts of other processes among the buckets with a recent start; older ones have been joined."""
        now_seconds = self._clock.monotonic_seconds()
        deadline_seconds = now_seconds + PATIENCE_SECONDS
        try:
            # Other processes may have stored later ones than this one knows.
            until_ms = await self._store.stored_until_ms(buckets.collection, deadline_seconds)
            if until_ms < 0:
                return
            since_ms = until_ms - SWEPT_SPANS * buckets.span_ms
            found = await self._store.find_parts(buckets.collection, since_ms, deadline_seconds)
        except BackendUnavailable:
            self._swept.discard(buckets.collection.uuid)
            self._pause(PATIENCE_SECONDS)
        except CommandError:
            # The account may not read the buckets, or the collection was dropped.
            return
        else:
            known, uuid = self._groups.known(), buckets.collection.uuid
            new = (ids for ids in found if may_be_part(ids[0]) and (uuid, ids[-1]) not in known)
            found_seconds, looks = self._clock.monotonic_seconds(), self._others.looks
            self._groups.found += [_Group(found_seconds, looks, buckets, families) for families in _grouped(new)]

    def _pause(self, seconds: float) -> None:
        self._not_before_seconds = self._clock.monotonic_seconds() + seconds

    async def _join(self, group: _Group) -> int:
        """Join the parts of a group, or put it back; returns the number of documents."""
        try:
            joined = await self._try(group)
        except Exception as error:  # noqa: BLE001 - it concerns this group only, so the rest goes on
            self._failed(group, error)
            return 0
        if joined is None:
            self._groups.put_off.append((self._clock.monotonic_seconds() + PAUSE_SECONDS, group))
            return 0
        return joined

    async def _try(self, group: _Group) -> int | None:
        """Join the parts of a group, unless readers are in the way: then ``None``."""
        buckets, grows = group.buckets, self._catalog.grows_in_parts
        spans = [Span(_ranges(ids), self._merge(buckets), ids[:1]) for ids in group.families if not grows(ids[0])]
        if buckets.replaced or not spans:
            return 0
        namespace = buckets.collection.namespace
        if self._groups.pauses.are_on(namespace.database):
            return None
        deadline_seconds = self._clock.monotonic_seconds() + PATIENCE_SECONDS
        prepared = await self._store.prepare_join(buckets.collection, spans, deadline_seconds)
        # What is one document was joined by its writer.
        joined = sum(found.documents for found in prepared.found if found and found.are_several)
        if not joined:
            await prepared.abandon()
            return 0
        if await committed_alone(prepared, self._readers, namespace, prepared.commit):
            return joined
        self._groups.pauses.begin(namespace.database)
        return None

    def _failed(self, group: _Group, error: Exception) -> None:
        """Try again what may succeed later, in smaller groups if one of its buckets may be the cause."""
        if isinstance(error, CommandError):
            if error.code == UNAUTHORIZED:
                self._refused(error)
            elif error.code == WRITE_CONFLICT:
                # Another process joins them just now, or the transaction of a killed one locks them for a while.
                self._put_back(group)
            elif error.code != NAMESPACE_NOT_FOUND and group.attempts < ATTEMPTS:
                halves = (
                    group.halves() if isinstance(error, BackendUnavailable) and len(group.families) > 1 else [group]
                )
                for each in halves:
                    self._put_back(replace(each, attempts=group.attempts + 1))
        elif len(group.families) > 1:
            self._groups.due.extendleft(group.halves())
        elif not isinstance(error, ValueError):
            self._noticed(error)
        # Else they are buckets of other writers, with ids that look like those of parts.

    def _put_back(self, group: _Group) -> None:
        self._groups.due.append(group)
        self._pause(PAUSE_SECONDS)


def _grouped(found: Iterable[Sequence[bytes]]) -> list[list[Sequence[bytes]]]:
    """The ids of parts of each bucket, those of neighbours together."""
    groups: list[list[Sequence[bytes]]] = []
    documents = 0
    for family in sorted(found, key=lambda ids: bucket_key(ids[0])):
        documents += len(family)
        if groups and documents <= GROUP_PARTS and groups[-1][0][0][:SEGMENT_AT] == family[0][:SEGMENT_AT]:
            groups[-1].append(family)
        else:
            groups.append([family])
            documents = len(family)
    return groups


def _ranges(ids: Sequence[bytes]) -> list[IdRange]:
    """The ids of each segment are a range."""
    ranges: list[IdRange] = []
    for each in ids:
        if ranges and ranges[-1].last_id[:PREFIX_BYTES] == each[:PREFIX_BYTES]:
            ranges[-1] = ranges[-1].up_to(each)
        else:
            ranges.append(IdRange(each, each, 1))
    return ranges
