"""Joins parts that other processes have left (``catalog.parts``).

Parts are joined only after ``COPIES_SECONDS``, the time for which a server may still execute a copy of an insert that
was sent twice. By then, a process that is still running has joined its parts itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from catalog.catalog import BucketCatalog
from catalog.errors import UNAUTHORIZED, WRITE_CONFLICT, BackendUnavailable, CommandError
from catalog.namespaces import Namespace
from catalog.open_bucket import CollectionBuckets
from catalog.parts import PREFIX_BYTES, SEGMENT_AT, IdRange, bucket_key, may_be_part
from catalog.ports import COPIES_SECONDS, BucketStore, Clock, PreparedJoin, Span
from catalog.replacing import Differs

CONFLICT_PAUSE_SECONDS = 1.0
"""Pause before another try to join parts that the transaction of a killed process still locks."""
SWEPT_SPANS = 8
"""How far back, in bucket spans, the search for parts goes."""
GROUP_PARTS = 512
"""Maximum number of documents of one step, unless one bucket has more."""
PASS_SECONDS = 0.2
PATIENCE_SECONDS = 10.0

Merge = Callable[[Sequence[bytes]], bytes]


class ReaderBarrier(Protocol):
    """Detects readers of buckets, and keeps new ones waiting."""

    def kept_out(self, namespace: Namespace) -> AbstractAsyncContextManager[bool]:
        """Keep new readers of the collection waiting, for a short time; true if no reader is active."""
        ...

    @property
    def still_kept_out(self) -> bool:
        """Whether they still wait: another process may have let its readers go on. Also called from threads."""
        ...


@dataclass(frozen=True, slots=True)
class _Group:
    """Neighbouring buckets of another process, which may have been killed or may still join their parts itself.

    They are not joined before ``due_seconds``: until then, the server may execute a copy of an insert that was sent
    twice, and would store a part again whose rows have been joined.
    """

    due_seconds: float
    buckets: CollectionBuckets
    families: Sequence[Sequence[bytes]]
    """For each bucket the ids of its parts, in their order."""

    def each(self) -> Iterable[_Group]:
        """Groups of one bucket."""
        return (_Group(self.due_seconds, self.buckets, [family]) for family in self.families)


class OrphanParts:
    """Searches each collection that this process writes to once, and joins the parts that it finds."""

    def __init__(
        self,
        catalog: BucketCatalog,
        store: BucketStore,
        clock: Clock,
        readers: ReaderBarrier,
        merge: Callable[[CollectionBuckets, bytes], Merge],
        refused: Callable[[CommandError], None],
        noticed: Callable[[Differs], None],
    ) -> None:
        """``merge`` gives the function that makes one document with that id of parts of a collection.

        ``refused`` is called if the account may not join; ``noticed``: see ``catalog.replacing.Forms``.
        """
        self._noticed = noticed
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._readers = readers
        self._merge = merge
        self._refused = refused
        self._swept: set[bytes] = set()
        """UUIDs of the collections that were searched."""
        self._groups: deque[_Group] = deque()
        self._not_before_seconds = 0.0
        self._documents_joined = 0

    async def sweep(self) -> int:
        """One pass; returns how many documents were joined."""
        before = self._documents_joined
        known = self._catalog.collections()
        self._swept.intersection_update({buckets.collection.uuid for buckets in known})
        for buckets in known:
            if buckets.stored_until_ms is not None and buckets.collection.uuid not in self._swept:
                self._swept.add(buckets.collection.uuid)
                await self._find(buckets)
        until_seconds = self._clock.monotonic_seconds() + PASS_SECONDS
        while self._is_due() and await self._join(self._groups.popleft()):
            if self._clock.monotonic_seconds() >= until_seconds:
                break
        return self._documents_joined - before

    async def _find(self, buckets: CollectionBuckets) -> None:
        """Find parts of other processes among the buckets with a recent start; older ones have been joined."""
        if buckets.stored_until_ms is None or buckets.stored_until_ms < 0:
            return
        since_ms = buckets.stored_until_ms - SWEPT_SPANS * buckets.span_ms
        deadline_seconds = self._clock.monotonic_seconds() + PATIENCE_SECONDS
        try:
            found = await self._store.find_parts(buckets.collection, since_ms, deadline_seconds)
        except BackendUnavailable:
            self._swept.discard(buckets.collection.uuid)
        except CommandError:
            # The account may not read the buckets, or the collection was dropped.
            return
        else:
            due_seconds = self._clock.monotonic_seconds() + COPIES_SECONDS
            self._groups += [_Group(due_seconds, buckets, families) for families in _grouped(found)]

    def _is_due(self) -> bool:
        now_seconds = self._clock.monotonic_seconds()
        return bool(self._groups) and now_seconds >= max(self._groups[0].due_seconds, self._not_before_seconds)

    async def _join(self, group: _Group) -> bool:
        """Join the parts of a group, or put it back; false if nothing more can be joined for now."""
        try:
            is_done = await self._try(group)
        except BackendUnavailable:
            is_done = False
        except (CommandError, ValueError, Differs) as error:
            return self._failed(group, error)
        if not is_done:
            self._groups.appendleft(group)
        return is_done

    async def _try(self, group: _Group) -> bool:
        """Join the parts of a group, unless readers are in the way: then false."""
        buckets, grows = group.buckets, self._catalog.grows_in_parts
        spans = [
            Span(_ranges(ids), self._merge(buckets, ids[-1]), ids[:1]) for ids in group.families if not grows(ids[0])
        ]
        if buckets.replaced or not spans:
            return True
        deadline_seconds = self._clock.monotonic_seconds() + PATIENCE_SECONDS
        prepared = await self._store.prepare_join(buckets.collection, spans, deadline_seconds)
        if not await self._committed(prepared, buckets.collection.namespace):
            return False
        # What is one document was joined by its writer.
        self._documents_joined += sum(count for count in prepared.counts if count and count > 1)
        return True

    async def _committed(self, prepared: PreparedJoin, namespace: Namespace) -> bool:
        """Whether there was a moment without readers."""
        is_sent = False
        try:
            async with self._readers.kept_out(namespace) as alone:
                # This process may have been stopped since readers were told to wait.
                if alone and self._readers.still_kept_out:
                    is_sent = True
                    await prepared.commit()
        finally:
            if not is_sent:
                await prepared.abandon()
        return is_sent

    def _failed(self, group: _Group, error: CommandError | ValueError | Differs) -> bool:
        """Whether the next group may be joined."""
        if isinstance(error, CommandError) and error.code == UNAUTHORIZED:
            self._refused(error)
        elif len(group.families) > 1:
            # One of them may be the cause, so each is tried alone.
            self._groups.extendleft(group.each())
        elif isinstance(error, CommandError) and error.code == WRITE_CONFLICT:
            # The transaction of a killed process locks them until the server aborts it.
            self._groups.append(group)
            self._not_before_seconds = self._clock.monotonic_seconds() + CONFLICT_PAUSE_SECONDS
            return False
        elif isinstance(error, Differs):
            self._noticed(error)
        # Buckets of other writers may have ids that look like those of parts. These stay as they are.
        return True


def _grouped(found: Iterable[Sequence[bytes]]) -> list[list[Sequence[bytes]]]:
    """The ids of parts of each bucket, those of neighbours together."""
    groups: list[list[Sequence[bytes]]] = []
    documents = 0
    for family in sorted(found, key=lambda ids: bucket_key(ids[0])):
        if not may_be_part(family[0]):
            continue
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
            ranges[-1] = ranges[-1]._replace(last_id=each, documents=ranges[-1].documents + 1)
        else:
            ranges.append(IdRange(each, each, 1))
    return ranges
