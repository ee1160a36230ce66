"""W3: reads of single series while many clients write."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bench import generator
from bench.context import Context, Window, interleaved, load_metrics
from bench.documents import BASE_MS, IOT
from bench.generator import Load
from bench.messages import Digits, command_template, get_more_template, insert_template
from bench.results import Sample
from bench.targets import Collection, Target, fresh_collection

READERS = 4


@dataclass(frozen=True, slots=True)
class MixedCase:
    """Single-document writers, and readers of the first ten minutes of a random one of their series."""

    writers: int
    series: int

    @property
    def name(self) -> str:
        """For example ``128 writers, 4 readers``."""
        return f"{self.writers} writers, {READERS} readers"


CASES = (MixedCase(16, 16), MixedCase(128, 128))


def _read_load(target: Target, collection: Collection, case: MixedCase, seconds: float, warmup_seconds: float) -> Load:
    start = dt.datetime.fromtimestamp(BASE_MS / 1000, dt.UTC)
    span = {"$gte": start, "$lt": start + dt.timedelta(minutes=10)}
    find = {"find": collection.name, "filter": {"device": Digits("dev-"), "time": span}}
    return Load(
        target.port,
        command_template(collection.database, find),
        connections=READERS,
        seconds=seconds,
        warmup_seconds=warmup_seconds,
        get_more=get_more_template(collection.database, collection.name),
        series=case.series,
        sharing="random",
    )


def measure(context: Context, case: MixedCase, target: Target) -> Mapping[str, float]:
    """One round: the readers' window lies within the writers'."""
    site, settings = context.site, context.settings
    with fresh_collection(target, IOT) as collection:
        with target.client() as client:
            client[collection.database][collection.name].create_index({"device": 1, "time": 1})
        window = Window(site)
        writes = generator.Running(
            Load(
                target.port,
                insert_template(collection.database, collection.name, IOT, 1, ordered=settings.ordered),
                connections=case.writers,
                seconds=settings.seconds,
                warmup_seconds=settings.warmup_seconds,
                series=case.series,
                sharing="partitioned",
                expect_n=1,
                account=site.pids(),
            )
        )
        reads = generator.run(_read_load(target, collection, case, settings.seconds, max(0.1, settings.warmup_seconds)))
        written = writes.result()
        metrics = load_metrics(site, target, written) | window.per_thousand(written.operations_total)
    return metrics | {
        "read_rate": reads.rate,
        "read_p50_us": reads.latency_us["p50"],
        "read_p99_us": reads.latency_us["p99"],
    }


class ReadsDuringWrites:
    """W3."""

    name = "W3"

    def _cases(self, context: Context) -> list[MixedCase]:
        return [case for case in CASES if context.settings.cases in case.name][: 1 if context.settings.smoke else None]

    def rounds(self, context: Context) -> int:
        """Samples to come."""
        return context.rounds(len(self._cases(context)), len(context.site.targets()))

    def run(self, context: Context) -> Iterator[Sample]:
        """All cases."""
        return interleaved(self.name, context, self._cases(context), context.site.targets(), measure)
