"""Processes that write the same series over one store, and gather their buckets (``catalog.background.gathering``)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from catalog.background.absorbing import Order
from catalog.background.gathering import Gathering
from catalog.background.joining import Joining
from catalog.bson.codec import decode
from catalog.buckets.open_bucket import Bucket
from catalog.buckets.resting import Given, Rested
from catalog.errors import BackendUnavailable, CommandError
from catalog.growth.growth import GrowthOptions
from catalog.kernel import Limits
from catalog.namespaces import Namespace, VirtualCollection
from catalog.ports import Found, PreparedJoin, Span
from tests.support.catalog_parts import ACKNOWLEDGED, CatalogBench, CountingIds, measurement
from tests.support.joining_bench import OPTIONS, UNTOUCHED, RememberingStore


class Server(RememberingStore):
    """Has the documents of all processes, and replaces them."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.loses_replies = False

    async def prepare_join(
        self, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> PreparedJoin:
        self.steps += 1
        if self.error is not None:
            raise self.error
        found = [[key for each in span.ranges for key in self._between(each.first_id, each.last_id)] for span in spans]
        joined = [
            span.merge([self.documents[key] for key in keys]) if len(keys) > 1 else b""
            for span, keys in zip(spans, found, strict=True)
        ]
        return Step(self, found, joined)

    def _between(self, first_id: bytes, last_id: bytes) -> list[bytes]:
        return sorted(key for key in self.documents if first_id <= key <= last_id)

    @property
    def rows(self) -> list[int]:
        """How many each bucket has."""
        return sorted(len(decode(each)["data"]["t"]) for each in self.documents.values())


class Step:
    """Implements ``PreparedJoin``."""

    is_carried_out_by_commit = False

    def __init__(self, server: Server, found: list[list[bytes]], joined: list[bytes]) -> None:
        self.found = [Found(len(keys), keys[-1]) if keys else None for keys in found]
        self._server = server
        self._found = found
        self._joined = joined

    async def commit(self) -> None:
        for keys, joined in zip(self._found, self._joined, strict=True):
            if joined:
                for key in keys:
                    del self._server.documents[key]
                self._server.documents[keys[-1]] = joined
        if self._server.loses_replies:
            raise BackendUnavailable("gone")

    async def abandon(self) -> None:
        self._server.abandoned += 1


class Readers:
    """Active, or not."""

    def __init__(self) -> None:
        self.are_active = False
        self.databases: set[str] = set()
        """Those of which there are active ones though ``are_active`` is not set."""
        self.tried = 0
        self.still_kept_out = True

    @asynccontextmanager
    async def kept_out(self, namespace: Namespace) -> AsyncIterator[bool]:
        self.tried += 1
        yield not (self.are_active or namespace.database in self.databases)


class Process(CatalogBench):
    """Writes in parts."""

    forms = UNTOUCHED

    def __init__(self, name: str, server: Server, processes: dict[str, Process]) -> None:
        super().__init__(
            growth=GrowthOptions(in_parts=True, batches_in_round=1, rows_in_place=1),
            limits=Limits(max_count=10),
            ids=CountingIds(1000 * len(processes)),
        )
        self.name = name
        self.server = server
        self.readers = Readers()
        self.refused: list[CommandError] = []
        self.processes = processes
        processes[name] = self
        self.joining = Joining(self.catalog, server, self.clock, self.readers, OPTIONS, self.refused.append, self.forms)
        self.gathering: Gathering = self.joining.gathering
        self.links = Links(self)
        self.gathering.link(self.links)

    def write(self, meta: Any, *offsets_ms: int, **fields: Any) -> None:
        for offset_ms in offsets_ms:
            (batch,) = self.stage(measurement(offset_ms, meta, **fields))
            batch.claim()
            document = self.catalog.prepare(batch, 8)
            assert document is not None
            self.server.documents[batch.stored_id] = document
            self.catalog.finish([batch], ACKNOWLEDGED)

    def bucket(self, meta: Any) -> Bucket:
        bucket = self.buckets.series[measurement(0, meta).meta].current
        assert bucket is not None
        return bucket


class Links:
    """Implements ``GatheringPeers`` for processes of one test."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.are_cut = False

    series_key: Final = b"key"

    def gatherer(self) -> str | None:
        names = sorted(self.process.processes)
        if len(names) == 1:
            return None
        return "" if names[0] == self.process.name else names[0]

    def tell(self, name: str, rested: Sequence[Rested]) -> None:
        self.process.processes[name].gathering.told(self.process.name, rested)

    async def give_up(self, wanted: Mapping[str, Sequence[bytes]]) -> list[Given]:
        given = [each for name, ids in wanted.items() for each in self.process.processes[name].gathering.give_up(ids)]
        return [] if self.are_cut else given

    def order(self, name: str, orders: Sequence[Order]) -> None:
        self.process.processes[name].gathering.ordered(orders)


class World:
    """Processes whose buckets have become one document each."""

    def __init__(self, *names: str) -> None:
        self.server = Server()
        self.processes: dict[str, Process] = {}
        for name in names:
            Process(name, self.server, self.processes)

    def pass_time(self, seconds: float) -> None:
        for each in self.processes.values():
            each.clock.now += seconds

    async def rest(self) -> None:
        """All parts are joined, and all processes tell."""
        await self.join()
        await self.look()

    async def join(self) -> None:
        """All parts are joined."""
        self.pass_time(2.5)
        for each in self.processes.values():
            await each.joining.join_due()
        self.pass_time(1)

    async def look(self, seconds: float = 2.0) -> None:
        for each in reversed(self.processes.values()):
            await each.gathering.look()
        self.pass_time(seconds)
        for each in self.processes.values():
            await each.gathering.look()
        for each in self.processes.values():
            await each.gathering.look()


async def world_of(*names: str) -> World:
    """These processes know one another."""
    world = World(*names)
    for each in world.processes.values():
        await each.gathering.look()
    return world


async def one_series_of_two() -> tuple[World, Process, Process]:
    """The first process has two rows of a series, the second one a later row; each in one document."""
    world = await world_of("one", "two")
    one, two = world.processes.values()
    one.write("a", 0, 1)
    two.write("a", 60_000)
    await world.join()
    return world, one, two
