"""N: a few clients that insert single documents, beside one that inserts large batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from bench import generator
from bench.context import Context, interleaved
from bench.documents import IOT
from bench.generator import Load, LoadResult
from bench.messages import insert_template
from bench.results import Sample
from bench.targets import Collection, Target, fresh_collection
from bench.workloads.sustained import fill_series

FACTOR: Final = 10
"""How much longer a round is than one of the other workloads: with ``--seconds 2`` a third of a minute."""
SINGLE_CONNECTIONS: Final = 4
SINGLE_INTERVAL_MS: Final = 10
"""Of each connection, which is far from what the servers can do."""
SINGLE_ROWS: Final = 500
HEAVY_INTERVAL_MS: Final = 20
SMOKE_DOCUMENTS: Final = 100


@dataclass(frozen=True, slots=True)
class NeighbourCase:
    """What the heavy client inserts: batches of ``documents`` documents at random times into ``series`` series."""

    documents: int
    series: int

    @property
    def name(self) -> str:
        """For example ``beside x1000 5000s``."""
        return f"beside x{self.documents} {self.series}s" if self.documents else "alone"


CASES = (NeighbourCase(0, 0), NeighbourCase(1000, 5000), NeighbourCase(20_000, 50))


def _singles(context: Context, target: Target, collection: Collection) -> Load:
    settings = context.settings
    return Load(
        target.port,
        insert_template(collection.database, collection.name, IOT, 1, ordered=settings.ordered),
        connections=SINGLE_CONNECTIONS,
        seconds=settings.seconds * (1 if settings.smoke else FACTOR),
        warmup_seconds=settings.warmup_seconds,
        series=SINGLE_CONNECTIONS,
        sharing="partitioned",
        first_tick=SINGLE_ROWS,
        interval_ms=SINGLE_INTERVAL_MS,
        run=2,
        expect_n=1,
    )


def _heavy(context: Context, case: NeighbourCase, target: Target, collection: Collection) -> Load:
    """It begins before the singles are measured, and ends after them."""
    settings = context.settings
    documents = SMOKE_DOCUMENTS if settings.smoke else case.documents
    return Load(
        target.port,
        insert_template(collection.database, collection.name, IOT, documents, ordered=False),
        seconds=settings.seconds * (1 if settings.smoke else FACTOR) + 1.0,
        warmup_seconds=settings.warmup_seconds / 2,
        series=case.series,
        sharing="random",
        order="two-days",
        interval_ms=HEAVY_INTERVAL_MS,
        expect_n=documents,
    )


def measure(context: Context, case: NeighbourCase, target: Target) -> Mapping[str, float]:
    """One round; both clients have collections of their own."""
    heavy: LoadResult | None = None
    with fresh_collection(target, IOT) as own, fresh_collection(target, IOT) as other:
        fill_series(context.site, own, IOT, SINGLE_CONNECTIONS, SINGLE_ROWS, 1000)
        neighbour = generator.Running(_heavy(context, case, target, other)) if case.documents else None
        try:
            singles = generator.run(_singles(context, target, own))
        except BaseException:
            if neighbour is not None:
                neighbour.stop()
            raise
        if neighbour is not None:
            heavy = neighbour.result()
    metrics = {
        "rate": singles.rate,
        "p50_us": singles.latency_us["p50"],
        "p99_us": singles.latency_us["p99"],
        "generator_load": singles.generator_cpu_seconds / singles.seconds,
    }
    return metrics if heavy is None else {**metrics, "heavy_rate": heavy.rate}


class Neighbours:
    """N."""

    name = "N"

    def _cases(self, context: Context) -> list[NeighbourCase]:
        return [case for case in CASES if context.settings.cases in case.name]

    def rounds(self, context: Context) -> int:
        """Samples to come."""
        return context.rounds(len(self._cases(context)), len(context.site.targets()))

    def run(self, context: Context) -> Iterator[Sample]:
        """All cases."""
        return interleaved(self.name, context, self._cases(context), context.site.targets(), measure)
