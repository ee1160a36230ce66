"""L: long loads of single documents into buckets that have rows already, with readers of single series beside them.

A load that begins with an empty collection and ends after seconds measures neither joins nor the server's cache. Here
the buckets have rows before it begins, which a native load has stored, there is the index that the readers need, and
everything is measured over time: what the last fifth loses against the first one was borrowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench import generator
from bench.context import Context, Window, interleaved, load_metrics
from bench.documents import CPU, IOT
from bench.generator import Load, LoadResult
from bench.messages import Digits, DocumentShape, command_template, get_more_template, insert_template
from bench.processes import cpu_seconds
from bench.results import Measured, Sample
from bench.sampling import Sampler
from bench.settling import settle
from bench.targets import PLAIN, Collection, Site, Target, fresh_collection

FIFTHS = 5
POINTS = 60
"""Of a curve."""
FACTOR = 30
"""How much longer than a round of the other workloads: with ``--seconds 2`` a minute."""
BATCH = 100
FILLERS = 4
READ_EVERY_MS = 500
"""The reader waits, so that it asks for the same number of reads of both targets."""


SERIES: Final = {"iot": ("device", Digits("dev-")), "cpu": ("tags.hostname", Digits("host_"))}
"""By document: which field tells series apart, and its value."""


@dataclass(frozen=True, slots=True)
class LongCase:
    """Single documents of ``series`` through ``connections``; each series has ``rows`` before.

    With ``interval_ms`` each connection sends one document in this time, so both targets have the same load. Without, a
    target that is faster has more to do beside its reads.
    """

    shape: DocumentShape
    connections: int
    series: int
    rows: int
    step_ms: int = 1000
    interval_ms: int = 0

    @property
    def series_path(self) -> str:
        """The field that tells series apart."""
        return SERIES[self.shape.name][0]

    @property
    def name(self) -> str:
        """For example ``iot 128c 1000s``."""
        paced = f" {1000 * self.connections // self.interval_ms}/s" if self.interval_ms else ""
        return f"{self.shape.name} {self.connections}c {self.series}s{paced}"


CASES = (
    LongCase(IOT, 128, 128, 500),
    LongCase(IOT, 128, 1000, 200),
    LongCase(IOT, 128, 1000, 200, interval_ms=64),
    LongCase(CPU, 128, 10_000, 30, 10_000),
    LongCase(CPU, 128, 100_000, 3, 10_000),
)


def fill(site: Site, case: LongCase, collection: Collection) -> None:
    """Store the first rows of each series directly, as another process would have."""
    fill_series(site, collection, case.shape, case.series, case.rows, case.step_ms)
    site.direct.admin.command("fsync")


def fill_series(site: Site, collection: Collection, shape: DocumentShape, series: int, rows: int, step_ms: int) -> None:
    """Store ``rows`` of each series directly; a series that several connections shared would come late."""
    documents = min(series * rows, BATCH)
    generator.run(
        Load(
            site.mongod_port,
            insert_template(collection.database, collection.name, shape, documents, ordered=False),
            connections=FILLERS if series >= FILLERS else 1,
            operations=series * rows // documents,
            series=series,
            sharing="partitioned",
            step_ms=step_ms,
            expect_n=documents,
        )
    )


def reader_loads(target: Target, collection: Collection, case: LongCase, seconds: float) -> Mapping[str, Load]:
    """What four readers ask for all the time: the rows of a series (two of them), a count, the last point."""
    query = {case.series_path: SERIES[case.shape.name][1]}
    commands: Mapping[str, Mapping[str, Any]] = {
        "series": {"find": collection.name, "filter": query},
        "count": {"count": collection.name, "query": query},
        "lastpoint": {"find": collection.name, "filter": query, "sort": {case.shape.time_field: -1}, "limit": 1},
    }
    return {
        name: Load(
            target.port,
            command_template(collection.database, command),
            connections=2 if name == "series" else 1,
            seconds=seconds,
            interval_ms=READ_EVERY_MS,
            curve_ms=_interval_ms(seconds),
            get_more=get_more_template(collection.database, collection.name),
            series=case.series,
            sharing="random",
        )
        for name, command in commands.items()
    }


def _interval_ms(seconds: float) -> int:
    return max(50, int(1000 * seconds / POINTS))


def _rate(points: Sequence[tuple[float, float]]) -> float:
    """The mean of a part of the curve of rates."""
    return sum(rate for _, rate in points) / max(1, len(points))


def measure(context: Context, case: LongCase, target: Target) -> Measured:
    """One round on a fresh collection."""
    site, settings = context.site, context.settings
    seconds = settings.seconds * (1 if settings.smoke else FACTOR)
    with fresh_collection(target, case.shape) as collection:
        with target.client() as client:
            keys = [(case.series_path, 1), (case.shape.time_field, -1)]
            client[collection.database][collection.name].create_index(keys)
        fill(site, case, collection)
        window, before = Window(site), cpu_seconds(site.mongod_pids)
        readers = reader_loads(target, collection, case, seconds)
        with Sampler(site, collection, _interval_ms(seconds) / 1000) as sampler:
            reading = {name: generator.Running(load) for name, load in readers.items()}
            load = Load(
                target.port,
                insert_template(collection.database, collection.name, case.shape, 1, ordered=settings.ordered),
                connections=case.connections,
                seconds=seconds,
                interval_ms=case.interval_ms,
                series=case.series,
                step_ms=case.step_ms,
                first_tick=case.rows,
                curve_ms=_interval_ms(seconds),
                run=2,
                expect_n=1,
                account=site.pids(),
            )
            result = generator.run(load)
            reads = {name: each.result() for name, each in reading.items()}
        stored = result.operations_total
        used_us = 1e6 * (cpu_seconds(site.mongod_pids) - before) / max(1, stored)
        rates = rate_curve(result)
        fifth = max(1, len(rates) // FIFTHS)
        metrics = load_metrics(site, target, result) | window.per_thousand(stored)
        metrics |= {
            "first_rate": _rate(rates[:fifth]),
            "last_rate": _rate(rates[-fifth:]),
            "mongod_cpu_us": used_us,
            "whole_mongod_cpu_us": used_us,
            "waiting_parts": float(max(0, site.bucket_count(collection) - case.series)),
        }
        for name, read in reads.items():
            metrics |= {f"{name}_{part}_us": read.latency_us[part] for part in ("p50", "p99")}
        if target.through_proxy and not settings.smoke:
            metrics |= settle(site, collection, stored, earlier=case.rows * case.series)
            metrics["whole_mongod_cpu_us"] += metrics["deferred_mongod_cpu_us"]
    curves = {"rate": rates, "p99_ms": latency_curve(result), **sampler.curves}
    return Measured(metrics, curves | {f"{name}_ms": latency_curve(read) for name, read in reads.items()})


def rate_curve(result: LoadResult) -> list[tuple[float, float]]:
    """Measurements a second in each interval."""
    ends = [0.0, *(end for end, _, _ in result.curve)]
    return [
        (end, count / (end - start)) for start, (end, count, _) in zip(ends, result.curve, strict=False) if end > start
    ]


def latency_curve(result: LoadResult) -> list[tuple[float, float]]:
    """The p99 of each interval in which something finished, in milliseconds."""
    return [(end, p99_us / 1000) for end, count, p99_us in result.curve if p99_us or count]


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
