"""Chooses and prepares the batches of one commit round (W64)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from catalog.buckets.write_batch import BatchState, WriteBatch
from catalog.catalog import BucketCatalog
from catalog.commit.empty_timestamps import EMPTY_TIMESTAMP
from catalog.internal_errors import internal_error

_CLAIMED: Final = BatchState.CLAIMED


@dataclass(frozen=True, slots=True)
class RoundLimits:
    """Limits of one backend command, below those of the server (100,000 statements, 48 MB)."""

    statements: int = 2_000
    size_bytes: int = 4 * 1024 * 1024


class PreparedWrite:
    """A prepared batch with the bucket document or update statement that carries it."""

    __slots__ = ("batch", "is_barred", "statement")

    def __init__(self, batch: WriteBatch, statement: bytes) -> None:
        self.batch = batch
        self.statement = statement
        self.is_barred = False
        """Whether it must not be sent any more, because other processes have executed statements in it."""


class Round:
    """New buckets and grown buckets that are committed at the same time."""

    __slots__ = ("failures", "inserts", "updates", "upserts")

    def __init__(self) -> None:
        self.inserts: list[PreparedWrite] = []
        self.upserts: list[PreparedWrite] = []
        """New buckets that need an upsert instead of an insert (``catalog.commit.empty_timestamps``)."""
        self.updates: list[PreparedWrite] = []
        self.failures: list[Exception] = []
        """Internal errors; the writers of the batch concerned got an error."""

    @property
    def writes(self) -> list[PreparedWrite]:
        """All writes of the round."""
        return self.inserts + self.upserts + self.updates

    @property
    def commands(self) -> list[list[PreparedWrite]]:
        """The writes grouped by the command that sends them."""
        return [writes for writes in (self.inserts, self.upserts, self.updates) if writes]

    @classmethod
    def of(
        cls, catalog: BucketCatalog, ready: Sequence[WriteBatch], limits: RoundLimits
    ) -> tuple[Round, list[WriteBatch]]:
        """Prepare batches up to ``limits``; returns the round and the batches that did not fit.

        Batches whose bucket has a prepared batch wait in that bucket and are in neither.
        """
        round_ = cls()
        size_bytes = statements = 0
        batches_in_round = len(ready)
        for position, batch in enumerate(ready):
            if batch.state is not _CLAIMED:
                continue
            if statements >= limits.statements or size_bytes >= limits.size_bytes:
                return round_, list(ready[position:])
            try:
                statement = catalog.prepare(batch, batches_in_round)
            except Exception as error:  # noqa: BLE001 - reported; an error in one bucket must not stop the others
                round_.failures.append(error)
                catalog.abort(batch, internal_error("preparing a write batch", error))
                continue
            if statement is None:
                continue
            statements += 1
            size_bytes += len(statement)
            if batch.base:
                writes = round_.updates
            else:
                writes = round_.upserts if batch.bucket.series.meta == EMPTY_TIMESTAMP else round_.inserts
            writes.append(PreparedWrite(batch, statement))
        return round_, []
