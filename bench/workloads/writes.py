"""W1 and W2: single documents and batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench import generator
from bench.context import Context, Window, interleaved, load_metrics
from bench.documents import CPU, IOT
from bench.generator import Load
from bench.messages import DocumentShape, insert_template
from bench.results import Sample
from bench.settling import settle
from bench.targets import Target, fresh_collection
from bench.workloads.sustained import fill_series

FACTOR: Final = 15
"""How much longer a round is than one of the other workloads: with ``--seconds 2`` half a minute."""
HALF_BUCKET_ROWS: Final = 500
STORED_ROWS: Final = 200_000


@dataclass(frozen=True, slots=True)
class WriteCase:
    """Inserts of ``documents`` documents each. ``series`` 0: one for each connection."""

    shape: DocumentShape
    connections: int
    series: int = 0
    documents: int = 1
    sharing: str = "shared"
    order: str = "in-order"
    step_ms: int = 1000

    @property
    def series_count(self) -> int:
        """How many series there are."""
        return self.series or self.connections

    @property
    def rows(self) -> int:
        """How many rows of each series there are before: half a bucket, or as many as are stored in some seconds."""
        return min(HALF_BUCKET_ROWS, max(1, STORED_ROWS // self.series_count))

    @property
    def name(self) -> str:
        """For example ``iot 128c 1000s``."""
        series = "own" if not self.series else f"{self.series}s"
        batch = "" if self.documents == 1 else f" x{self.documents}"
        order = "" if self.order == "in-order" else f" {self.order}"
        return f"{self.shape.name} {self.connections}c {series}{batch}{order}"


def single_cases() -> list[WriteCase]:
    """W1."""
    own = [
        WriteCase(shape, connections, sharing="partitioned", step_ms=step_ms)
        for shape, step_ms in ((IOT, 1000), (CPU, 10_000))
        for connections in (1, 16, 128, 512)
    ]
    many = [WriteCase(IOT, connections, series) for connections in (128, 512) for series in (1000, 10_000)]
    return [*own, *many, WriteCase(CPU, 512, 10_000, step_ms=10_000)]


def batch_cases() -> list[WriteCase]:
    """W2. One series that several connections share advances in small steps, or every batch would come late."""
    in_order = [
        WriteCase(IOT, connections, series, documents, "partitioned", step_ms=1 if series < connections else 1000)
        for documents in (100, 1000)
        for connections in (1, 8)
        for series in (1, 100, 10_000)
    ]
    two_days = WriteCase(IOT, 1, 1, 100, order="two-days")
    late = [WriteCase(IOT, connections, 100, 1000, "partitioned", "late", 60_000) for connections in (1, 8)]
    return [*in_order, WriteCase(CPU, 8, 100, 1000, "partitioned", step_ms=10_000), two_days, *late]


def measure(context: Context, case: WriteCase, target: Target) -> Mapping[str, float]:
    """One round on a collection whose series have rows already."""
    site, settings = context.site, context.settings
    rows = 1 if settings.smoke else case.rows
    earlier = rows * case.series_count
    with fresh_collection(target, case.shape) as collection:
        fill_series(site, collection, case.shape, case.series_count, rows, case.step_ms)
        site.direct.admin.command("fsync")
        template = insert_template(
            collection.database, collection.name, case.shape, case.documents, ordered=settings.ordered
        )
        window = Window(site)
        result = generator.run(
            Load(
                target.port,
                template,
                connections=case.connections,
                seconds=settings.seconds * (1 if settings.smoke else FACTOR),
                warmup_seconds=settings.warmup_seconds,
                series=case.series_count,
                sharing=case.sharing,
                order=case.order,
                step_ms=case.step_ms,
                first_tick=rows,
                run=2,
                expect_n=case.documents,
                account=site.pids(),
            )
        )
        stored = result.operations_total * case.documents
        metrics = load_metrics(site, target, result) | window.per_thousand(stored)
        metrics["whole_mongod_cpu_us"] = metrics["mongod_cpu_us"]
        if target.through_proxy and not settings.smoke:
            metrics |= settle(site, collection, stored, earlier=earlier)
            metrics["whole_mongod_cpu_us"] += metrics["deferred_mongod_cpu_us"]
        elif target.time_series:
            metrics["rows_per_bucket"] = (stored + earlier) / max(1, site.bucket_count(collection))
    return metrics


class Writes:
    """A workload of write cases."""

    def __init__(self, name: str, cases: Sequence[WriteCase]) -> None:
        self.name = name
        self._cases = cases

    def _chosen(self, context: Context) -> list[WriteCase]:
        chosen = [case for case in self._cases if context.settings.cases in case.name]
        return chosen[::5] if context.settings.smoke else chosen

    def rounds(self, context: Context) -> int:
        """Samples to come."""
        return context.rounds(len(self._chosen(context)), len(context.site.targets()))

    def run(self, context: Context) -> Iterator[Sample]:
        """All cases."""
        return interleaved(self.name, context, self._chosen(context), context.site.targets(), measure)
