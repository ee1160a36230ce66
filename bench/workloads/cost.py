"""C: what the proxy costs with many clients and many open series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench import generator
from bench.context import Context, Window, interleaved, load_metrics
from bench.documents import CPU
from bench.generator import Load
from bench.messages import insert_template
from bench.processes import memory_bytes
from bench.results import Sample
from bench.targets import Target, fresh_collection


@dataclass(frozen=True, slots=True)
class CostCase:
    """The number of clients and of open series, with one document an insert."""

    connections: int
    series: int

    @property
    def name(self) -> str:
        """For example ``512c 10000 series``."""
        return f"{self.connections}c {self.series} series"


CASES = (CostCase(128, 128), CostCase(512, 10_000))


def measure(context: Context, case: CostCase, target: Target) -> Mapping[str, float]:
    """Every series is opened first; then a round of W1."""
    site, settings = context.site, context.settings
    with fresh_collection(target, CPU) as collection:
        opening = insert_template(collection.database, collection.name, CPU, 100, ordered=False)
        operations = -(-case.series // 100)
        generator.run(Load(target.port, opening, operations=operations, series=case.series, step_ms=10_000, run=1))
        single = insert_template(collection.database, collection.name, CPU, 1, ordered=settings.ordered)
        window = Window(site)
        result = generator.run(
            Load(
                target.port,
                single,
                connections=case.connections,
                seconds=settings.seconds,
                warmup_seconds=settings.warmup_seconds,
                series=case.series,
                step_ms=10_000,
                first_tick=100,
                run=2,
                expect_n=1,
                account=site.pids(),
            )
        )
        metrics = load_metrics(site, target, result) | window.per_thousand(result.operations_total)
        # A microsecond for each measurement is a second for each million.
        metrics["mongod_cpu_s_per_million"] = metrics["mongod_cpu_us"]
        if target.through_proxy:
            metrics["proxy_cpu_s_per_million"] = metrics["proxy_cpu_us"]
            metrics["proxy_memory_mb"] = memory_bytes(site.proxy_pids) / 1e6
    return metrics


class Cost:
    """C."""

    name = "C"

    def _cases(self, context: Context) -> list[CostCase]:
        return [case for case in CASES if context.settings.cases in case.name][: 1 if context.settings.smoke else None]

    def rounds(self, context: Context) -> int:
        """Samples to come."""
        return context.rounds(len(self._cases(context)), len(context.site.targets(plain=False)))

    def run(self, context: Context) -> Iterator[Sample]:
        """All cases."""
        targets = context.site.targets(plain=False)
        return interleaved(self.name, context, self._cases(context), targets, measure)
