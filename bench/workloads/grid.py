"""G: a grid of loads, so that no shape of load that is slower than native goes unnoticed.

Every combination of document, batch, number of series and of connections, fill of the buckets, and pace, each for a
second: what a load costs after minutes is the subject of L.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from bench import generator
from bench.context import Context, interleaved, load_metrics
from bench.documents import CPU, IOT
from bench.generator import Load
from bench.messages import DocumentShape, insert_template
from bench.results import Sample
from bench.settling import settle
from bench.targets import Target, fresh_collection
from bench.workloads.sustained import fill_series

SHORTER: Final = 2
"""A round takes this part of ``--seconds`` and ``--warmup``, as there are 1,440 of them."""
SETTLED_SECONDS: Final = 2.5
BUCKET_ROWS: Final = 1000
STORED_ROWS: Final = 100_000
"""At most this many rows are stored before a round: with more series, full buckets have fewer rows, as they end with
the hour."""
HOUR_MS: Final = 3_600_000
BURST_MS: Final = 10
PERIOD_MS: Final = 100

FILLS: Final[Mapping[str, float]] = {"empty": 0.0, "half": 0.5, "full": 0.95}
"""The part of a bucket that has rows before."""
PACES: Final = ("steady", "bursts")


@dataclass(frozen=True, slots=True)
class Cell:
    """Batches of ``documents``; ``bursts``: operations start in the first 10 ms of every 100 ms only."""

    shape: DocumentShape
    documents: int
    series: int
    connections: int
    fill: str
    pace: str

    @property
    def name(self) -> str:
        """For example ``iot x10 30s · 8c half bursts``: the row of the map, and its column."""
        return f"{self.shape.name} x{self.documents} {self.series}s · {self.connections}c {self.fill} {self.pace}"

    @property
    def bucket_rows(self) -> int:
        """How many rows of a series fit into a bucket."""
        return min(BUCKET_ROWS, STORED_ROWS // self.series)

    @property
    def rows(self) -> int:
        """Rows of each series before the round."""
        return int(self.bucket_rows * FILLS[self.fill])

    @property
    def step_ms(self) -> int:
        """A series that several connections share advances in small steps, or every batch would come late."""
        return 1 if self.series < self.connections else HOUR_MS // self.bucket_rows


CELLS: Final = tuple(
    Cell(*each)
    for each in product((IOT, CPU), (1, 10, 100, 1000), (1, 30, 100, 1000, 10_000), (1, 8, 128), FILLS, PACES)
)


def measure(context: Context, cell: Cell, target: Target) -> Mapping[str, float]:
    """One round on a fresh collection."""
    site, settings = context.site, context.settings
    with fresh_collection(target, cell.shape) as collection:
        if cell.rows:
            fill_series(site, collection, cell.shape, cell.series, cell.rows, cell.step_ms)
        result = generator.run(
            Load(
                target.port,
                insert_template(
                    collection.database, collection.name, cell.shape, cell.documents, ordered=settings.ordered
                ),
                connections=cell.connections,
                seconds=settings.seconds / SHORTER,
                warmup_seconds=settings.warmup_seconds / SHORTER,
                series=cell.series,
                sharing="partitioned",
                step_ms=cell.step_ms,
                first_tick=cell.rows,
                burst_ms=BURST_MS if cell.pace == "bursts" else 0,
                period_ms=PERIOD_MS if cell.pace == "bursts" else 0,
                run=2,
                expect_n=cell.documents,
                account=site.pids(),
            )
        )
        metrics = load_metrics(site, target, result)
        metrics["whole_mongod_cpu_us"] = metrics["mongod_cpu_us"]
        if target.through_proxy and not settings.smoke:
            stored = result.operations_total * cell.documents
            metrics |= settle(site, collection, stored, earlier=cell.rows * cell.series, quiet_seconds=SETTLED_SECONDS)
            metrics["whole_mongod_cpu_us"] += metrics["deferred_mongod_cpu_us"]
    return metrics


class Grid:
    """G."""

    name = "G"

    def _chosen(self, context: Context) -> list[Cell]:
        return [cell for cell in CELLS if context.settings.cases in cell.name][:: 180 if context.settings.smoke else 1]

    def _targets(self, context: Context) -> list[Target]:
        return context.site.targets(plain=False)

    def rounds(self, context: Context) -> int:
        """Samples to come."""
        return context.rounds(len(self._chosen(context)), len(self._targets(context)))

    def run(self, context: Context) -> Iterator[Sample]:
        """All cells."""
        return interleaved(self.name, context, self._chosen(context), self._targets(context), measure)
