"""A committer over a catalog and a scripted store, as inserts of clients use them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from catalog.commit.committer import Committer, CommitterOptions
from catalog.namespaces import VirtualCollection
from catalog.ports import Applied, BulkOutcome, MaySend, WriteConcern
from tests.support.catalog_parts import ACKNOWLEDGED, KEY, CatalogBench, RememberingWriter, ScriptedStore


class LoopClock:
    def monotonic_seconds(self) -> float:
        return asyncio.get_running_loop().time()


class CommitterBench(CatalogBench):
    """With a committer over a scripted store."""

    def __init__(self, *answers: Any, store: ScriptedStore | None = None, **options: Any) -> None:
        reopening = options.pop("reopening", False)
        super().__init__(reopening=reopening, clock=LoopClock())
        self.store = store or ScriptedStore(*answers)
        self.reported: list[BaseException] = []
        self.committer = Committer(
            self.catalog, self.store, self.clock, CommitterOptions(**options), self.reported.append
        )

    def insert(self, *measurements: Any, key: Any = KEY) -> RememberingWriter:
        """As an insert of one client."""
        writer = RememberingWriter()
        for index, each in enumerate(measurements):
            batch = self.catalog.place(self.buckets, each, writer, index, key)
            if batch is not None and batch.claim():
                self.committer.submit(batch)
        self.committer.kick()
        return writer

    async def rest(self) -> None:
        async with asyncio.timeout(20):
            await self.committer.drain()
        assert not self.committer._lanes
        assert self.committer.batches_ready == 0


class Behind:
    """Replies of a proxy that have yet to be written: what is to follow them waits until ``written``."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.are_waiting = True

    def __call__(self, call: Callable[[], None]) -> bool:
        if self.are_waiting:
            self.calls.append(call)
        return self.are_waiting

    def written(self) -> None:
        self.are_waiting = False
        for call in self.calls:
            call()


class HeldStore(ScriptedStore):
    """Answers when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def insert(
        self,
        collection: VirtualCollection,
        documents: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
        may_send: MaySend | None = None,
    ) -> BulkOutcome:
        self.sent.append(("insert", list(documents), write_concern))
        await self.gate.wait()
        return Applied(len(documents), {}, ACKNOWLEDGED)
