"""Joins parts that other processes have left (``catalog.parts``).

Parts are joined only after ``COPIES_SECONDS``, the time for which a server may still execute a copy of an insert that
was sent twice. By then, a process that is still running has joined its parts itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from catalog.catalog import BucketCatalog
from catalog.errors import UNAUTHORIZED, WRITE_CONFLICT, BackendUnavailable, CommandError
from catalog.namespaces import Namespace
from catalog.open_bucket import CollectionBuckets
from catalog.parts import PREFIX_BYTES, IdRange, may_be_part
from catalog.ports import COPIES_SECONDS, BucketStore, Clock, Span
from catalog.replacing import Differs

CONFLICT_PAUSE_SECONDS = 1.0
"""Pause before another try to join parts that the transaction of a killed process still locks."""
SWEPT_SPANS = 8
"""How far back, in bucket spans, the search for parts goes."""
AT_ONCE = 32
"""Maximum number of buckets that are joined while readers wait."""
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
class _Orphan:
    """Parts of another process, which may have been killed or may still join them itself.

    They are not joined before ``due_seconds``: until then, the server may execute a copy of an insert that was sent
    twice, and would store a part again whose rows have been joined.
    """

    due_seconds: float
    buckets: CollectionBuckets
    ids: Sequence[bytes]
    """In their order."""


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
        self._orphans: deque[_Orphan] = deque()
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
                await self._find_orphans(buckets)
        await self._join_orphans()
        return self._documents_joined - before

    async def _find_orphans(self, buckets: CollectionBuckets) -> None:
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
            self._orphans += [_Orphan(due_seconds, buckets, ids) for ids in found if may_be_part(ids[0])]

    async def _join_orphans(self) -> None:
        """Join up to ``AT_ONCE`` of the found buckets of one collection."""
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds < self._not_before_seconds or not await self._drop_joined(now_seconds):
            return
        namespace = self._orphans[0].buckets.collection.namespace
        async with self._readers.kept_out(namespace) as alone:
            for _ in range(AT_ONCE if alone else 0):
                if not self._orphans or self._orphans[0].buckets.collection.namespace != namespace:
                    return
                if self._orphans[0].due_seconds > now_seconds:
                    return
                try:
                    if not await self._join_found(self._orphans[0]):
                        return
                except CommandError:
                    # The transaction of a killed process locks them until the server aborts it.
                    self._orphans.rotate(-1)
                    self._not_before_seconds = self._clock.monotonic_seconds() + CONFLICT_PAUSE_SECONDS
                    return
                self._orphans.popleft()

    async def _drop_joined(self, now_seconds: float) -> bool:
        """Drop buckets whose first part is gone, as their writer has joined them; true if something due is left."""
        if not self._orphans or self._orphans[0].due_seconds > now_seconds:
            return False
        buckets = self._orphans[0].buckets
        due = [each for each in self._orphans if each.buckets is buckets and each.due_seconds <= now_seconds]
        due = due[:AT_ONCE]
        deadline_seconds = now_seconds + PATIENCE_SECONDS
        stored: Mapping[bytes, bytes] = {}
        try:
            stored = await self._store.fetch(buckets.collection, [each.ids[0] for each in due], deadline_seconds)
        except BackendUnavailable:
            return False
        except CommandError:
            # The account may not read the buckets: drop these.
            pass
        for each in due:
            if each.ids[0] not in stored:
                self._orphans.remove(each)
        return bool(self._orphans) and self._orphans[0].due_seconds <= now_seconds

    async def _join_found(self, left: _Orphan) -> bool:
        """Join one bucket; false if the backend did not respond. Raises ``CommandError`` 112 if parts are locked."""
        buckets, ids = left.buckets, left.ids
        if self._catalog.grows_in_parts(ids[0]) or buckets.replaced:
            return True
        deadline_seconds = self._clock.monotonic_seconds() + PATIENCE_SECONDS
        span = Span(_ranges(ids), self._merge(buckets, ids[-1]), ids[:1])
        try:
            prepared = await self._store.prepare_join(buckets.collection, [span], deadline_seconds)
            if not self._readers.still_kept_out:
                # This process may have been stopped since the parts were read. They are joined later.
                await prepared.abandon()
                raise CommandError(WRITE_CONFLICT, "readers no longer wait for this join")
            await prepared.commit()
        except BackendUnavailable:
            return False
        except ValueError:
            # Buckets of other writers may have ids that look like those of parts.
            return True
        except Differs as error:
            self._noticed(error)
            return True
        except CommandError as error:
            if error.code == WRITE_CONFLICT:
                raise
            if error.code == UNAUTHORIZED:
                self._refused(error)
            return True
        self._documents_joined += sum(each or 0 for each in prepared.counts)
        return True


def _ranges(ids: Sequence[bytes]) -> list[IdRange]:
    """The ids of each segment are a range."""
    ranges: list[IdRange] = []
    for each in ids:
        if ranges and ranges[-1].last_id[:PREFIX_BYTES] == each[:PREFIX_BYTES]:
            ranges[-1] = ranges[-1]._replace(last_id=each, documents=ranges[-1].documents + 1)
        else:
            ranges.append(IdRange(each, each, 1))
    return ranges
