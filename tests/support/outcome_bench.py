"""A catalog with the outcomes of its commits, over a store of scripted answers."""

from __future__ import annotations

from typing import Any

from catalog.bson.codec import decode, encode
from catalog.commit.commit_outcome import CommitOutcomes
from catalog.commit.reclaiming import Reclaiming
from catalog.commit.round import PreparedWrite
from catalog.commit.sending import Commit
from catalog.errors import BackendUnavailable, CommandError
from catalog.ports import Applied, Unknown, WriteConcern
from tests.support.catalog_parts import ACKNOWLEDGED, CatalogBench, RememberingWriter, ScriptedStore, measurement
from tests.support.ownership import not_shared

LOST = Unknown(BackendUnavailable("connection reset"))
NONE_MATCHED = Applied(0, {}, ACKNOWLEDGED)
DUPLICATE = Applied(0, {0: CommandError(11000, "E11000 duplicate key error")}, ACKNOWLEDGED)
PATIENCE_SECONDS = 30.0


class OutcomeBench(CatalogBench):
    """With commit outcomes over a scripted store."""

    def __init__(self, *answers: Any, **options: Any) -> None:
        super().__init__(**options)
        self.store = ScriptedStore(*answers)
        self.woken = 0
        self.reclaiming = self._reclaiming()
        self.outcomes = CommitOutcomes(
            self.catalog, self.store, self.clock, PATIENCE_SECONDS, self.reclaiming, self._wake
        )
        self.writers: list[RememberingWriter] = []

    def _reclaiming(self) -> Reclaiming:
        return not_shared()

    def _wake(self) -> None:
        self.woken += 1

    def write(self, offset_ms: int = 0, meta: object = "a", **fields: Any) -> PreparedWrite:
        """One measurement, prepared."""
        writer = RememberingWriter()
        self.writers.append(writer)
        (batch,) = self.stage(measurement(offset_ms, meta, **fields), writer=writer)
        batch.claim()
        statement = self.catalog.prepare(batch)
        assert statement is not None
        return PreparedWrite(batch, statement)

    def grown(self, meta: object = "a", **fields: Any) -> PreparedWrite:
        """One measurement for a bucket that has one."""
        self.store.documents[self.stored(self.commit(measurement(meta=meta)), meta)] = b""
        return self.write(1, meta, **fields)

    def stored(self, batch: Any, meta: object) -> bytes:
        return bytes(batch.bucket.state.bucket_id)

    def commit_of(self, *writes: PreparedWrite) -> Commit:
        now = self.clock.now
        return Commit(self.virtual, WriteConcern(), writes, now, now + PATIENCE_SECONDS)

    async def commit_writes(self, *writes: PreparedWrite) -> None:
        await self.outcomes.commit(self.commit_of(*writes))

    @property
    def codes(self) -> list[dict[int, int | None]]:
        return [writer.codes for writer in self.writers]

    def as_stored(self, write: PreparedWrite, **control: Any) -> bytes:
        """The document of a new bucket as the backend has it."""
        document = decode(write.statement)
        document["control"].update(control)
        return encode(document)


class ServerIds:
    """Of one server, which differ in their last three bytes only."""

    def __init__(self) -> None:
        self._count = 0xFF_0000

    def suffix(self) -> bytes:
        self._count += 1
        return b"a few" + self._count.to_bytes(3, "big")

    def segment(self) -> bytes:
        return b"a "

    def next_segment(self) -> None:
        raise AssertionError("a server has no segments")

    def made(self, stored_id: bytes) -> bool:
        return False
