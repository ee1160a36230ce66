"""What the backend's answer to a commit means for each batch of it (W65-W67, W126-W128).

The reply of a bulk ``update`` tells only totals, and a lost connection tells nothing. Neither is guessed: the
statements are repeatable, because ids, row numbers and guards are ours, so a doubtful one is sent again and the
stored bucket is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from catalog.catalog import BucketCatalog
from catalog.errors import BackendUnavailable, CommandError
from catalog.kernel import applied_rows
from catalog.namespaces import VirtualCollection
from catalog.ports import (
    Acknowledgement,
    Applied,
    BucketStore,
    BulkOutcome,
    Clock,
    Rejected,
    Unknown,
    WriteConcern,
)
from catalog.round import PreparedWrite
from catalog.write_batch import BatchState, WriteBatch

DUPLICATE_KEY = 11000
UUID_MISMATCH = 361
NAMESPACE_NOT_FOUND = 26

FETCHED_AT_ONCE = 64
"""Stored buckets looked at with one command; one may be over 125 KB (W42)."""


class Settlement:
    """Turns outcomes into ``finish``, ``abort`` and ``replace``."""

    def __init__(
        self, catalog: BucketCatalog, store: BucketStore, clock: Clock, patience_seconds: float
    ) -> None:
        """``patience_seconds``: how long an unknown outcome is looked for before its writers are told so."""
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._patience_seconds = patience_seconds

    async def settle(
        self,
        collection: VirtualCollection,
        writes: Sequence[PreparedWrite],
        write_concern: WriteConcern,
        outcome: BulkOutcome,
        deadline_seconds: float,
    ) -> list[WriteBatch]:
        """Carry out what ``outcome`` means; returns batches whose turn has come."""
        resent = False
        if isinstance(outcome, Unknown):
            # A slow backend may have used up the time already; looking begins only now.
            deadline_seconds = max(deadline_seconds, self._clock.monotonic_seconds() + self._patience_seconds)
        while isinstance(outcome, Unknown):
            if self._clock.monotonic_seconds() >= deadline_seconds:
                return self._give_up(writes, outcome.error)
            resent = True
            send = self._store.update if writes[0].batch.base else self._store.insert
            statements = [write.statement for write in writes]
            outcome = await send(collection, statements, write_concern, deadline_seconds)
        if isinstance(outcome, Rejected):
            if outcome.error.code in (UUID_MISMATCH, NAMESPACE_NOT_FOUND):
                return await self._other_incarnation(collection, writes)
            if resent:
                return self._give_up(writes, outcome.error)
            return self._abort(writes, outcome.error)
        return await self._applied(collection, writes, outcome, deadline_seconds)

    async def _applied(
        self,
        collection: VirtualCollection,
        writes: Sequence[PreparedWrite],
        outcome: Applied,
        deadline_seconds: float,
    ) -> list[WriteBatch]:
        doubtful: list[PreparedWrite] = []
        ready: list[WriteBatch] = []
        if outcome.matched >= len(writes):
            finish, acknowledgement = self._catalog.finish, outcome.acknowledgement
            for write in writes:
                ready += finish(write.batch, acknowledgement)
            return ready
        told = len(outcome.errors) + outcome.matched == len(writes)
        for position, write in enumerate(writes):
            error = outcome.errors.get(position)
            if error is not None and error.code != DUPLICATE_KEY:
                self._catalog.abort(write.batch, error)
            elif error is None and told:
                ready += self._catalog.finish(write.batch, outcome.acknowledgement)
            else:
                doubtful.append(write)
        ready += await self._look(collection, doubtful, outcome.acknowledgement, deadline_seconds)
        return ready

    async def _look(
        self,
        collection: VirtualCollection,
        writes: Sequence[PreparedWrite],
        acknowledgement: Acknowledgement,
        deadline_seconds: float,
    ) -> list[WriteBatch]:
        """The stored bucket tells whether these rows are there; if not, they are placed anew (W126, W127)."""
        ready: list[WriteBatch] = []
        for start in range(0, len(writes), FETCHED_AT_ONCE):
            part = writes[start : start + FETCHED_AT_ONCE]
            ids = [write.batch.bucket.state.bucket_id for write in part]
            try:
                stored = await self._store.fetch(collection, ids, deadline_seconds + self._patience_seconds)
            except CommandError as error:
                ready += self._give_up(part, error)
                continue
            for write in part:
                ready += self._judge(write, stored.get(write.batch.bucket.state.bucket_id), acknowledgement)
        return ready

    def _judge(
        self, write: PreparedWrite, document: bytes | None, acknowledgement: Acknowledgement
    ) -> list[WriteBatch]:
        batch = write.batch
        time_field = batch.bucket.series.collection.time_field
        try:
            applied = document is not None and applied_rows(document, time_field, batch.base, batch.measurements)
        except ValueError:
            error = CommandError(112, "the time-series bucket was changed by somebody else while it was written")
            return self._give_up((write,), error)
        if applied:
            return self._catalog.finish(batch, acknowledgement)
        self._catalog.replace(batch)
        return []

    async def _other_incarnation(
        self, collection: VirtualCollection, writes: Sequence[PreparedWrite]
    ) -> list[WriteBatch]:
        """The collection was dropped, and perhaps created again, behind our back (W72)."""
        error = CommandError(
            NAMESPACE_NOT_FOUND,
            f"time-series insert failed: {collection.namespace} :: caused by :: "
            f"Buckets collection not found for time-series collection {collection.namespace}",
        )
        now: VirtualCollection | None = None
        try:
            now = await self._store.resolve(collection)
        except CommandError as failed:
            error = failed
        fields = (collection.options.time_field, collection.options.meta_field)
        if now is None or (now.options.time_field, now.options.meta_field) != fields or now.uuid == collection.uuid:
            self._catalog.drop(collection.namespace)
            return self._abort(writes, error)
        self._catalog.collection(now)
        for write in writes:
            if write.batch.state is BatchState.PREPARED:
                self._catalog.replace(write.batch)
        return []

    def _abort(self, writes: Sequence[PreparedWrite], error: CommandError) -> list[WriteBatch]:
        for write in writes:
            self._catalog.abort(write.batch, error)
        return []

    def _give_up(self, writes: Sequence[PreparedWrite], error: CommandError) -> list[WriteBatch]:
        """Undecided in time: the writers are told so, the bucket is not believed any more (W127)."""
        told = BackendUnavailable(
            f"the backend went away before it answered, so the outcome of this write is unknown: {error.message}",
            code=error.code,
            labels=error.labels,
        )
        return self._abort(writes, told)
