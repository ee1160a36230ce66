"""What parts cost the server, from their insert until their buckets are one document each, by where their ids lie.

``python -m bench.join_cost``: one-row parts of many series in bulks, and the joins of ``proxy.backend.parts``. A
segment of ``--segment`` parts lies together; with one that never ends, each part lies beside its bucket. Processor time
of the mongod.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import bson
import click
from bson import ObjectId

from bench.commit_cost import DATABASE, TIME_FIELD, Bench, bucket_document
from bench.documents import BASE_MS
from bench.processes import LOOPBACK, Mongod
from catalog.kernel import bucket_id
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from catalog.parts import TOGETHER, Parts, Pending, closed, in_segment, join, segment_of
from catalog.ports import Span
from proxy.backend.parts.part_store import PartStore
from proxy.backend.service import ServicePool
from proxy.process.process_ids import ProcessIds

BULK = 75
DOCUMENTS_IN_A_STEP = 512
PATIENCE_SECONDS = 60.0
OPTIONS = TimeseriesOptions(TIME_FIELD, "meta", Granularity.SECONDS, 3600, 60)


@dataclass(frozen=True, slots=True)
class Case:
    """``parts`` parts of ``series`` series, in segments of ``segment`` parts; ``together`` runs become one."""

    shape: str
    series: int
    parts: int
    segment: int
    together: int
    replica_set: bool


class Load:
    """The parts of a case, and their joins."""

    def __init__(self, case: Case, bench: Bench, store: PartStore, collection: VirtualCollection) -> None:
        self._case = case
        self._bench = bench
        self._store = store
        self._collection = collection
        self._ids = ProcessIds()
        self._buckets = [bucket_id(BASE_MS - BASE_MS % 60_000, self._ids.suffix()) for _ in range(case.series)]
        self._parts = [Parts(each, 0, 0.0) for each in self._buckets]
        self._documents = [self._part(number) for number in range(case.series)]
        self._chance = random.Random(1)
        self._insert(self._documents)

    def _part(self, series: int) -> bytes:
        document = bucket_document(ObjectId(self._buckets[series]), self._case.shape, 1)
        encoded = bson.encode(document | {"meta": f"{series:07}"})
        return encoded if self._case.replica_set else closed(encoded)

    def insert(self) -> None:
        """All parts of a segment; each series has its turn, in changing order."""
        left = self._case.segment or self._case.parts // 6
        documents: list[bytes] = []
        while left > 0:
            order = list(range(self._case.series))
            self._chance.shuffle(order)
            for series in order[:left]:
                bucket, parts = self._buckets[series], self._parts[series]
                segment = self._ids.segment() if self._case.segment else segment_of(bucket)
                part_id = parts.next_id(in_segment(bucket, segment))
                parts.committed(part_id, 1, 0.0)
                documents.append(self._documents[series][:9] + part_id + self._documents[series][21:])
            left -= len(order)
        self._insert(documents)
        self._ids.next_segment()

    def _insert(self, documents: Sequence[bytes]) -> None:
        for start in range(0, len(documents), BULK):
            bulk = documents[start : start + BULK]
            self._bench.commit("insert", self._collection.buckets.collection, bulk, bypass=True)()

    async def join(self, *, everything: bool) -> None:
        """What the proxy joins when a segment has ended, or in the end."""
        for group in self._groups(everything=everything):
            spans = [Span(pending.ranges, self._merge(pending), pending.unsealed) for _, pending in group]
            until_seconds = asyncio.get_running_loop().time() + PATIENCE_SECONDS
            await (await self._store.prepare_join(self._collection, spans, until_seconds)).commit()
            for parts, pending in group:
                parts.joined(pending)

    def _merge(self, pending: Pending) -> Callable[[Sequence[bytes]], bytes]:
        def merge(documents: Sequence[bytes]) -> bytes:
            joined = join(documents, pending.last_id, TIME_FIELD.encode(), b"meta")
            return joined if self._case.replica_set or pending.is_last else closed(joined)

        return merge

    def _groups(self, *, everything: bool) -> Iterator[list[tuple[Parts, Pending]]]:
        group: list[tuple[Parts, Pending]] = []
        documents = 0
        for parts in self._parts:
            pending = parts.pending(everything=everything, together=self._case.together)
            if pending.documents <= 1:
                if pending.documents:
                    parts.joined(pending)
                continue
            if group and documents + pending.documents > DOCUMENTS_IN_A_STEP:
                yield group
                group, documents = [], 0
            group.append((parts, pending))
            documents += pending.documents
        if group:
            yield group


async def measure(case: Case, port: int) -> tuple[float, float, float]:
    """µs of the server for each part: to insert it, to join it meanwhile, and to join it in the end."""
    bench = Bench(port)

    async def primary(_: float) -> tuple[str, int]:
        return LOOPBACK, port

    pool = ServicePool(primary, None, None, PATIENCE_SECONDS)
    try:
        with bench.collection("native", case.shape) as name:
            (entry,) = bench.client[DATABASE].list_collections(filter={"name": name})
            collection = VirtualCollection(Namespace(DATABASE, case.shape), OPTIONS, bytes(entry["info"]["uuid"]))
            store = PartStore(pool, transactions=case.replica_set, alone=lambda: True)
            load = Load(case, bench, store, collection)
            inserting = joining = made = 0
            while made < case.parts:
                before = bench.cpu_us()
                load.insert()
                between = bench.cpu_us()
                await load.join(everything=False)
                inserting += between - before
                joining += bench.cpu_us() - between
                made += case.segment or case.parts // 6
            before = bench.cpu_us()
            await load.join(everything=True)
            return inserting / made, joining / made, (bench.cpu_us() - before) / made
    finally:
        pool.close()


@click.command()
@click.option("--parts", default=300_000, show_default=True)
@click.option("--series", default=10_000, show_default=True)
@click.option("--segment", default=50_000, show_default=True, help="Parts of a segment; 0: one that never ends.")
@click.option("--together", default=TOGETHER, show_default=True, help="Runs of the same size that become one.")
@click.option("--shape", type=click.Choice(["iot", "cpu"]), default="cpu", show_default=True)
@click.option("--replica-set", is_flag=True, help="The mongod is the one member of a set.")
@click.option("--cache-gb", default=1.0, show_default=True)
def main(parts: int, series: int, segment: int, together: int, shape: str, replica_set: bool, cache_gb: float) -> None:
    """Measure what parts and their joins cost the server."""
    with tempfile.TemporaryDirectory(prefix="tsproxy-bench-") as directory:
        mongod = Mongod(Path(directory), None, cache_gb, replica_set=replica_set).start()
        try:
            figures = asyncio.run(measure(Case(shape, series, parts, segment, together, replica_set), mongod.port))
        finally:
            mongod.stop()
    names = ("insert", "join", "join in the end")
    click.echo(" · ".join(f"{name} {figure:.1f} µs" for name, figure in zip(names, figures, strict=True)))
    click.echo(f"{sum(figures):.1f} µs for each part")


if __name__ == "__main__":
    main()
