"""L: long loads of single documents into buckets that have rows already, with a reader of single series beside them.

A load that begins with an empty collection and ends after seconds measures neither joins nor the server's cache. Here
the buckets have rows before it begins, which a native load has stored, and it is measured in fifths: what a later one
loses against the first one was borrowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench import generator
from bench.context import Context, Window, interleaved, load_metrics
from bench.documents import CPU, IOT
from bench.generator import Load, LoadResult
from bench.messages import Digits, DocumentShape, command_template, get_more_template, insert_template
from bench.processes import cpu_seconds
from bench.results import Sample
from bench.settling import settle
from bench.targets import PLAIN, Collection, Target, fresh_collection

FIFTHS = 5
FACTOR = 30
"""How much longer than a round of the other workloads: with ``--seconds 2`` a minute."""
BATCH = 100
FILLERS = 4
READ_EVERY_MS = 500
"""The reader waits, so that it asks for the same number of reads of both targets."""


@dataclass(frozen=True, slots=True)
class LongCase:
    """Single documents of ``series`` through ``connections``; each series has ``rows`` before."""

    shape: DocumentShape
    connections: int
    series: int
    rows: int
    step_ms: int = 1000

    @property
    def name(self) -> str:
        """For example ``iot 128c 1000s``."""
        return f"{self.shape.name} {self.connections}c {self.series}s"


CASES = (LongCase(IOT, 128, 128, 500), LongCase(IOT, 128, 1000, 200), LongCase(CPU, 128, 10_000, 30, 10_000))


def _fill(context: Context, case: LongCase, collection: Collection) -> None:
    """Store the first rows of each series directly, as another process would have."""
    documents = min(case.rows, BATCH)
    template = insert_template(collection.database, collection.name, case.shape, documents, ordered=False)
    generator.run(
        Load(
            context.site.mongod_port,
            template,
            connections=FILLERS,
            operations=case.series * case.rows // documents,
            series=case.series,
            sharing="partitioned",
            step_ms=case.step_ms,
            expect_n=documents,
        )
    )
    context.site.direct.admin.command("fsync")


def _reads(target: Target, collection: Collection, case: LongCase, seconds: float) -> Load:
    count = {"count": collection.name, "query": {case.shape.meta_field: Digits("dev-")}}
    return Load(
        target.port,
        command_template(collection.database, count),
        connections=1,
        seconds=seconds,
        interval_ms=READ_EVERY_MS,
        get_more=get_more_template(collection.database, collection.name),
        series=case.series,
        sharing="random",
    )


def measure(context: Context, case: LongCase, target: Target) -> Mapping[str, float]:
    """One round on a fresh collection."""
    site, settings = context.site, context.settings
    seconds = settings.seconds * (1 if settings.smoke else FACTOR)
    with fresh_collection(target, case.shape) as collection:
        _fill(context, case, collection)
        window, before = Window(site), cpu_seconds(site.mongod_pids)
        reads = generator.Running(_reads(target, collection, case, seconds))
        fifths: list[LoadResult] = []
        for number in range(FIFTHS):
            stored = sum(fifth.operations_total for fifth in fifths)
            template = insert_template(collection.database, collection.name, case.shape, 1, ordered=settings.ordered)
            load = Load(
                target.port,
                template,
                connections=case.connections,
                seconds=seconds / FIFTHS,
                series=case.series,
                step_ms=case.step_ms,
                first_tick=case.rows + stored // case.series + number,
                run=number + 2,
                expect_n=1,
                account=site.pids(),
            )
            fifths.append(generator.run(load))
        read = reads.result()
        stored = sum(fifth.operations_total for fifth in fifths)
        used_us = 1e6 * (cpu_seconds(site.mongod_pids) - before) / max(1, stored)
        metrics = load_metrics(site, target, fifths[-1]) | window.per_thousand(stored)
        metrics |= {
            "rate": sum(fifth.measurements for fifth in fifths) / sum(fifth.seconds for fifth in fifths),
            "first_rate": fifths[0].rate,
            "last_rate": fifths[-1].rate,
            "p99_us": max(fifth.latency_us["p99"] for fifth in fifths),
            "mongod_cpu_us": used_us,
            "whole_mongod_cpu_us": used_us,
            "read_rate": read.rate,
            "read_p50_us": read.latency_us["p50"],
            "read_p99_us": read.latency_us["p99"],
            "waiting_parts": float(max(0, site.bucket_count(collection) - case.series)),
        }
        if target.through_proxy and not settings.smoke:
            metrics |= settle(site, collection, stored)
            metrics["whole_mongod_cpu_us"] += metrics["deferred_mongod_cpu_us"]
    return metrics


class Sustained:
    """L."""

    name = "L"

    def _chosen(self, context: Context) -> list[LongCase]:
        return [case for case in CASES if context.settings.cases in case.name][: 1 if context.settings.smoke else None]

    def _targets(self, context: Context) -> list[Target]:
        return [target for target in context.site.targets() if target.name != PLAIN]

    def rounds(self, context: Context) -> int:
        """Samples to come."""
        return context.rounds(len(self._chosen(context)), len(self._targets(context)))

    def run(self, context: Context) -> Iterator[Sample]:
        """All cases."""
        return interleaved(self.name, context, self._chosen(context), self._targets(context), measure)
