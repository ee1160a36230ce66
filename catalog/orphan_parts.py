"""Joins parts that other processes have left (``catalog.parts``).

Those of a process that is certainly gone (``Others``) are joined soon. All others are joined only after
``COPIES_SECONDS``, the time for which a server may still execute a copy of an insert that was sent twice. By then, a
process that is still running has joined its parts itself.
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

GONE_SECONDS = 5.0
"""When parts have been found so long ago, a process that made some of them is known if it is still there."""
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


class Others(Protocol):
    """The other processes."""

    def has_gone(self, stored_id: bytes) -> bool:
        """Whether the process that made this id is certainly gone, and the backend executes nothing of it any more."""
        ...


class Unknown:
    """Where other processes are not known; implements ``Others``."""

    def has_gone(self, stored_id: bytes) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class _Group:
    """Neighbouring buckets of other processes, which may have been killed or may still join their parts themselves.

    Too early, the server may still execute a copy of an insert that was sent twice, and store a part again whose rows
    have been joined.
    """

    found_seconds: float
    buckets: CollectionBuckets
    families: Sequence[Sequence[bytes]]
    """For each bucket the ids of its parts, in their order."""

    def part(self, families: Sequence[Sequence[bytes]]) -> _Group:
        """With some of the buckets."""
        return _Group(self.found_seconds, self.buckets, families)


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
        self.others: Others = Unknown()
        self._found: deque[_Group] = deque()
        """Those of which some may be of processes that are gone."""
        self._waiting: deque[_Group] = deque()
        """Those that are not, or may not be."""
        self._due: deque[_Group] = deque()
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
        await self._pass()
        return self._documents_joined - before

    def search_again(self) -> None:
        """Another process has gone, and may have left parts."""
        self._swept.clear()

    async def _find(self, buckets: CollectionBuckets) -> None:
        """Find parts of other processes among the buckets with a recent start; older ones have been joined."""
        deadline_seconds = self._clock.monotonic_seconds() + PATIENCE_SECONDS
        try:
            # Other processes may have stored later ones than this one knows.
            until_ms = await self._store.stored_until_ms(buckets.collection, deadline_seconds)
            if until_ms < 0:
                return
            since_ms = until_ms - SWEPT_SPANS * buckets.span_ms
            found = await self._store.find_parts(buckets.collection, since_ms, deadline_seconds)
        except BackendUnavailable:
            self._swept.discard(buckets.collection.uuid)
        except CommandError:
            # The account may not read the buckets, or the collection was dropped.
            return
        else:
            now_seconds = self._clock.monotonic_seconds()
            groups = (*self._found, *self._waiting, *self._due)
            known = {ids[-1] for group in groups for ids in group.families}
            new = (ids for ids in found if may_be_part(ids[0]) and ids[-1] not in known)
            self._found += [_Group(now_seconds, buckets, families) for families in _grouped(new)]

    async def _pass(self) -> None:
        """Join what is due, as far as there is time for it."""
        now_seconds = self._clock.monotonic_seconds()
        while self._found and now_seconds >= self._found[0].found_seconds + GONE_SECONDS:
            self._divide(self._found.popleft())
        while self._waiting and now_seconds >= self._waiting[0].found_seconds + COPIES_SECONDS:
            self._due.append(self._waiting.popleft())
        if now_seconds < self._not_before_seconds:
            return
        until_seconds = now_seconds + PASS_SECONDS
        while self._due and await self._join(self._due.popleft()):
            if self._clock.monotonic_seconds() >= until_seconds:
                break

    def _divide(self, group: _Group) -> None:
        gone = [ids for ids in group.families if self.others.has_gone(ids[0])]
        if gone:
            self._due.append(group.part(gone))
        if len(gone) < len(group.families):
            gone_ids = {ids[0] for ids in gone}
            self._waiting.append(group.part([ids for ids in group.families if ids[0] not in gone_ids]))

    async def _join(self, group: _Group) -> bool:
        """Join the parts of a group, or put it back; false if nothing more can be joined for now."""
        try:
            is_done = await self._try(group)
        except BackendUnavailable:
            is_done = False
        except (CommandError, ValueError, Differs) as error:
            return self._failed(group, error)
        if not is_done:
            self._due.appendleft(group)
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
            self._due.extendleft(group.part([ids]) for ids in group.families)
        elif isinstance(error, CommandError) and error.code == WRITE_CONFLICT:
            # The transaction of a killed process locks them until the server aborts it.
            self._due.append(group)
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
