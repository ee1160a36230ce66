"""Sends commits and determines the outcome of each batch (W65-W67, W126-W128).

The reply to a bulk ``update`` has totals only, and after a lost connection there is no reply. The proxy does not guess:
statements can be repeated, because the proxy chooses ids, row numbers and guards, so doubtful ones are sent again and
the stored buckets are read. If an outcome is still unknown at the deadline, the writers get an error that says so. If
one of them may send the statement again, the write is pursued until it is resolved, so that a retry does not write
twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from catalog.buckets.write_batch import BatchState, WriteBatch
from catalog.catalog import BucketCatalog
from catalog.commit.reclaiming import Contested, Reclaiming, is_contested
from catalog.commit.round import PreparedWrite
from catalog.commit.sending import Commit, CommitSending, divided
from catalog.commit.statements import NETWORK_TIMEOUT
from catalog.commit.written import is_written, is_written_elsewhere
from catalog.errors import NAMESPACE_NOT_FOUND, UUID_MISMATCH, BackendUnavailable, CommandError
from catalog.namespaces import VirtualCollection
from catalog.parts import PREFIX_BYTES, may_be_part
from catalog.ports import (
    Acknowledgement,
    Applied,
    BucketStore,
    BulkOutcome,
    Clock,
    OnOutcome,
    Rejected,
    Unknown,
    WriteConcern,
)

DUPLICATE_KEY = 11000
BEFORE_EXECUTION = frozenset({13, 18, 72, NAMESPACE_NOT_FOUND, UUID_MISMATCH})
"""Errors of a whole command that occur before its first statement runs; after others, the stored buckets are read."""

FETCHED_AT_ONCE = 64
"""Stored buckets read with one command; one may be larger than 125 KB (W42)."""

SHORTEST_LOOK_SECONDS = 2.0
"""Minimum time for reading stored buckets, even if the writers' deadline has passed."""

DOUBTS_LIMIT_BYTES = 64 * 1024 * 1024
"""Maximum size of the statements that are pursued; above it, the oldest are lost."""

_REWRITTEN = "the bucket was rewritten meanwhile"


@dataclass(frozen=True, slots=True)
class Doubt:
    """A write whose outcome is pursued."""

    write: PreparedWrite
    collection: VirtualCollection
    write_concern: WriteConcern
    error: CommandError


class CommitOutcomes:
    """Carries out commits, and calls ``finish``, ``abort``, ``refuse``, ``replace`` or ``doubt`` of the catalog."""

    def __init__(
        self,
        catalog: BucketCatalog,
        store: BucketStore,
        clock: Clock,
        patience_seconds: float,
        reclaiming: Reclaiming,
        wake: Callable[[], None],
    ) -> None:
        """``patience_seconds``: how long the proxy tries to resolve an unknown outcome before its writers get an error.

        ``wake`` is called before this object waits, so that other work of the catalog starts.
        """
        self.doubts: dict[WriteBatch, Doubt] = {}
        self._catalog = catalog
        self._store = store
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._sending = CommitSending(store, clock, reclaiming)
        self._wake = wake

    def begin(self, commit: Commit, told: OnOutcome) -> bool:
        """Send a commit if that takes no wait; ``told`` is called with the outcome of this attempt.

        It has to be settled then: by ``settle_at_once``, or else by ``commit``.
        """
        return self._sending.begin(commit, told)

    def settle_at_once(self, commit: Commit, outcome: BulkOutcome) -> bool:
        """Settle every batch if that takes no wait: if the commit was applied as a whole, as nearly all are."""
        if not isinstance(outcome, Applied) or outcome.matched < len(commit.writes):
            return False
        self._catalog.finish([write.batch for write in commit.writes], outcome.acknowledgement)
        return True

    async def commit(self, commit: Commit, begun: BulkOutcome | None = None) -> BulkOutcome:
        """Send a commit and settle every batch of it; the outcome of the last attempt.

        ``begun`` is the outcome of the first attempt, if that was made by ``begin``.
        """
        if begun is None:
            commit, outcome = await self._send(commit)
        else:
            outcome = self._sending.noted(commit, begun)
        resent = False
        if isinstance(outcome, Unknown):
            # A slow backend may have used up the time already, but resolving begins only now.
            until_seconds = self._in_time(commit, 2)
            commit = commit.until(max(commit.deadline_seconds, until_seconds))
        while isinstance(outcome, Unknown):
            if self._clock.monotonic_seconds() >= commit.deadline_seconds:
                self.give_up(commit, outcome.error)
                return outcome
            resent = True
            commit, outcome = await self._send(commit, resent=True)
        if commit.writes:
            await self._settle(commit, outcome, resent=resent)
        return outcome

    async def _send(self, commit: Commit, *, resent: bool = False) -> tuple[Commit, BulkOutcome]:
        """Send a commit, but for writes that must not be sent (again); the part that was sent, and its outcome."""
        outcome = await self._sending.send(commit, resent=resent)
        while isinstance(outcome, Rejected) and isinstance(outcome.error, Contested):
            concerned, others = divided(commit, outcome.error)
            await self._leave_out(commit, concerned, outcome.error, resent=resent)
            commit = commit.of(others)
            if not others:
                break
            outcome = await self._sending.send(commit, resent=resent)
        return commit, outcome

    def _in_time(self, commit: Commit, patiences: int) -> float:
        """A deadline of one patience from now, but at most ``patiences`` of them after the staging."""
        patience_seconds = self._patience_seconds
        return min(
            self._clock.monotonic_seconds() + patience_seconds, commit.since_seconds + patiences * patience_seconds
        )

    async def _settle(self, commit: Commit, outcome: Applied | Rejected, *, resent: bool) -> None:
        if isinstance(outcome, Applied):
            await self._applied(commit, outcome, resent=resent)
        elif outcome.error.code in (UUID_MISMATCH, NAMESPACE_NOT_FOUND):
            await self._other_incarnation(commit)
        elif isinstance(outcome.error, BackendUnavailable):
            # This attempt was not sent.
            if resent:
                self.give_up(commit, outcome.error)
            else:
                self._abort(commit.writes, outcome.error)
        elif resent or outcome.error.code not in BEFORE_EXECUTION:
            # The command may have been interrupted halfway.
            refusals = dict.fromkeys((write.batch for write in commit.writes), outcome.error)
            await self._look(commit, commit.writes, Acknowledgement(), refusals, resent=resent)
        else:
            self._abort(commit.writes, outcome.error)

    async def _leave_out(
        self, commit: Commit, concerned: Sequence[PreparedWrite], contested: Contested, *, resent: bool
    ) -> None:
        """Statements in these writes must not be sent; place the rest again, if nothing of it was sent before."""
        if resent:
            # An earlier copy may be executed at any time, so the rest is not written to another bucket.
            refusals: dict[WriteBatch, CommandError] = {write.batch: contested for write in concerned}
            await self._look(commit, concerned, Acknowledgement(), refusals, resent=True)
            return
        settled = contested.settle()
        for write in concerned:
            write.batch.leave(settled)
        self._replace(concerned)

    async def _applied(self, commit: Commit, outcome: Applied, *, resent: bool) -> None:
        if self.settle_at_once(commit, outcome):
            return
        writes, acknowledgement = commit.writes, outcome.acknowledgement
        is_complete = len(outcome.errors) + outcome.matched == len(writes)
        doubtful: list[PreparedWrite] = []
        refusals: dict[WriteBatch, CommandError] = {}
        for position, write in enumerate(writes):
            error = outcome.errors.get(position)
            if error is not None and error.code != DUPLICATE_KEY:
                if resent:
                    # This copy failed, but an earlier one may have been applied.
                    refusals[write.batch] = error
                    doubtful.append(write)
                else:
                    self._catalog.refuse(write.batch, error)
            elif error is None and is_complete:
                self._catalog.finish([write.batch], acknowledgement)
            else:
                doubtful.append(write)
        if doubtful and writes[0].batch.base and not outcome.matched and not resent:
            # No guard matched, so nothing was applied; equal rows in the buckets are those of other writers.
            self._replace(doubtful)
        elif doubtful:
            await self._look(commit, doubtful, acknowledgement, refusals, resent=resent)

    async def _look(
        self,
        commit: Commit,
        writes: Sequence[PreparedWrite],
        acknowledgement: Acknowledgement,
        refusals: Mapping[WriteBatch, CommandError],
        *,
        resent: bool,
    ) -> None:
        """Read the stored buckets to find out what was written (W126, W127).

        Batches that were not written are placed again, or fail with their error in ``refusals``.
        """
        self._wake()
        for start in range(0, len(writes), FETCHED_AT_ONCE):
            part = writes[start : start + FETCHED_AT_ONCE]
            ids = [write.batch.stored_id for write in part]
            now_seconds = self._clock.monotonic_seconds()
            deadline_seconds = max(now_seconds + SHORTEST_LOOK_SECONDS, self._in_time(commit, 3))
            try:
                stored = await self._store.fetch(commit.collection, ids, deadline_seconds)
            except CommandError as error:
                self.give_up(commit.of(part), error)
                continue
            for write in part:
                batch = write.batch
                written = is_written(stored.get(batch.stored_id), batch, is_alone=self._sending.is_alone)
                if written is False and (batch.base or batch.stored_id in stored):
                    try:
                        written = await self._is_elsewhere(commit, batch, deadline_seconds)
                    except CommandError as failed:
                        self.give_up(commit.of([write]), failed)
                        continue
                if written is None and self._sending.is_alone:
                    self.give_up(commit.of([write]), CommandError(1, _REWRITTEN))
                elif written is None:
                    # What others have executed of it will tell no more later.
                    self._catalog.lose(batch, outcome_unknown(CommandError(NETWORK_TIMEOUT, _REWRITTEN)))
                elif written:
                    self._catalog.finish([batch], acknowledgement)
                elif (refusal := refusals.get(batch)) is None:
                    self._replace([write])
                elif resent:
                    # The server may still execute an earlier copy, so the rows are not written to another bucket.
                    self._catalog.lose(batch, refusal)
                else:
                    self._catalog.abort(batch, refusal)

    async def _is_elsewhere(self, commit: Commit, batch: WriteBatch, deadline_seconds: float) -> bool | None:
        """Whether the rows are in a document that another process has joined with others; ``None`` if unknown.

        Raises ``CommandError``.
        """
        bucket_id = batch.bucket.state.bucket_id
        if not may_be_part(bucket_id):
            # Nobody joins a server's buckets; the ids next to theirs are those of other series.
            return False
        bucket, prefixes = batch.bucket, []
        if bucket.own:
            known = [bucket_id[:PREFIX_BYTES]] if bucket.parts is None else bucket.parts.prefixes
            prefixes = list(dict.fromkeys((*known, batch.stored_id[:PREFIX_BYTES])))
        stored = await self._store.fetch_family(commit.collection, bucket_id, prefixes, deadline_seconds)
        return is_written_elsewhere(stored, batch, is_alone=self._sending.is_alone)

    async def _other_incarnation(self, commit: Commit) -> None:
        """The collection was dropped, and perhaps created again, without passing through this proxy (W72)."""
        collection = commit.collection
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
        others = now is None or (now.options.time_field, now.options.meta_field) != fields
        # The catalog takes none with a collation, by which summaries would be others.
        if now is None or others or now.collation is not None or now.uuid == collection.uuid:
            self._catalog.drop(collection.namespace)
            self._abort(commit.writes, error)
            return
        self._catalog.collection(now)
        self._replace(commit.writes)

    def _replace(self, writes: Sequence[PreparedWrite]) -> None:
        for write in writes:
            self._catalog.replace(write.batch)

    def _abort(self, writes: Sequence[PreparedWrite], error: CommandError) -> None:
        for write in writes:
            self._catalog.abort(write.batch, error)

    # --- in doubt ------------------------------------------------------------------------------------------

    def give_up(self, commit: Commit, error: CommandError) -> None:
        """The outcome is unknown at the deadline: writers get an error, and the bucket is forgotten (W127)."""
        unknown = outcome_unknown(error)
        for write in commit.writes:
            batch = write.batch
            if batch.state is not BatchState.PREPARED or batch in self.doubts:
                continue
            if self._catalog.doubt(batch, unknown):
                self.doubts[batch] = Doubt(write, commit.collection, commit.write_concern, unknown)
        _, size_bytes = self.pursued()
        while size_bytes > DOUBTS_LIMIT_BYTES:
            batch, doubt = next(iter(self.doubts.items()))
            del self.doubts[batch]
            size_bytes -= len(doubt.write.statement)
            self._catalog.lose(batch, doubt.error)

    def pursued(self) -> tuple[int, int]:
        """The measurements in doubt, and the bytes of the statements that write them."""
        doubts = self.doubts.values()
        return (
            sum(len(doubt.write.batch.measurements) for doubt in doubts),
            sum(len(doubt.write.statement) for doubt in doubts),
        )

    async def pursue(self, slice_seconds: float) -> None:
        """Try once to resolve the writes in doubt, for up to ``slice_seconds`` for each group that is sent together."""
        groups: dict[tuple[VirtualCollection, WriteConcern, bool, bool], list[PreparedWrite]] = {}
        for batch, doubt in self.doubts.items():
            # Others need not wait while nobody can tell what became of contested statements.
            waits = any(is_contested(writer) for writer, _ in batch.shares)
            key = (doubt.collection, doubt.write_concern, batch.base > 0, waits)
            groups.setdefault(key, []).append(doubt.write)
        try:
            for (collection, write_concern, _, _), writes in groups.items():
                now_seconds = self._clock.monotonic_seconds()
                commit = Commit(collection, write_concern, writes, now_seconds, now_seconds + slice_seconds)
                commit, outcome = await self._send(commit, resent=True)
                if commit.writes and not isinstance(outcome, Unknown):
                    await self._settle(commit, outcome, resent=True)
        finally:
            for batch in [batch for batch in self.doubts if batch.state is not BatchState.PREPARED]:
                del self.doubts[batch]
            self._wake()

    def expire(self) -> None:
        """Give an error to writers whose deadline has passed."""
        now_seconds = self._clock.monotonic_seconds()
        for batch, doubt in list(self.doubts.items()):
            for writer in batch.doubtful or ():
                writer.expire(now_seconds, doubt.error)


def outcome_unknown(error: CommandError) -> BackendUnavailable:
    """What writers are told when an outcome is unknown for this reason."""
    return BackendUnavailable(f"the outcome of this write is unknown: {error.message}", code=error.code)
