"""R: what the proxy costs commands that have nothing to do with time series."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bench import generator
from bench.context import Context, interleaved, load_metrics
from bench.documents import ORDINARY
from bench.generator import Load, LoadResult
from bench.messages import INT32, command_template, get_more_template, insert_template
from bench.processes import memory_bytes, reset_peak_memory
from bench.results import Sample
from bench.targets import Site, Target

DATABASE = "bench_relay"
FOUND = 10_000
BATCH_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RelayCase:
    """``command`` through ``connections``, one in flight on each."""

    command: str
    connections: int

    @property
    def name(self) -> str:
        """For example ``find_one 64c``."""
        return f"{self.command} {self.connections}c"


CASES = (
    *(RelayCase(command, each) for command in ("ping", "find_one", "insert_one") for each in (1, 16, 64)),
    RelayCase("drain", 1),
    RelayCase("drain", 4),
)


@contextmanager
def _loaded(site: Site, drained_bytes: int) -> Iterator[None]:
    """Small documents to find by id, and documents of a kilobyte to drain in batches of 16 MB."""
    database = site.direct[DATABASE]
    site.direct.drop_database(DATABASE)
    small = [{"_id": number, "name": "x" * 40, "count": number} for number in range(FOUND)]
    database["small"].insert_many(small)
    padding = secrets.token_bytes(960)
    for start in range(0, drained_bytes // 1024, 10_000):
        stop = min(start + 10_000, drained_bytes // 1024)
        database["large"].insert_many([{"_id": number, "padding": padding} for number in range(start, stop)])
    try:
        yield
    finally:
        site.direct.drop_database(DATABASE)


def _load(case: RelayCase, target: Target, context: Context, run: int) -> Load:
    settings = context.settings
    common = Load(
        target.port,
        command_template(DATABASE, {"find": "large", "filter": {}}),
        connections=case.connections,
        seconds=settings.seconds,
        warmup_seconds=settings.warmup_seconds,
        account=context.site.pids(),
    )
    match case.command:
        case "ping":
            return replace(common, template=command_template("admin", {"ping": 1}))
        case "find_one":
            command = {"find": "small", "filter": {"_id": INT32}, "limit": 1, "singleBatch": True}
            return replace(common, template=command_template(DATABASE, command), series=FOUND, sharing="random")
        case "insert_one":
            template = insert_template(DATABASE, "inserted", ORDINARY, 1)
            return replace(common, template=template, run=run, expect_n=1)
        case _:
            more = get_more_template(DATABASE, "large")
            return replace(common, get_more=more, warmup_seconds=0.0, operations=2 * case.connections)


def measure(context: Context, case: RelayCase, target: Target) -> Mapping[str, float]:
    """One round; of a drain also the megabytes a second and how far the proxy's memory rises."""
    site = context.site
    watched = site.proxy_pids if target.through_proxy else []
    before = memory_bytes(watched)
    reset_peak_memory(watched)
    result = generator.run(_load(case, target, context, secrets.randbits(31)))
    metrics = load_metrics(site, target, result)
    return metrics | (_drain_metrics(result, before, watched) if case.command == "drain" else {})


def _drain_metrics(result: LoadResult, before: int, watched: list[int]) -> dict[str, float]:
    metrics = {"megabytes_per_s": result.reply_bytes / result.seconds / 1e6}
    if watched:
        metrics["proxy_growth_mb"] = (memory_bytes(watched, "VmHWM") - before) / 1e6
    return metrics


class Relay:
    """R."""

    name = "R"

    def _cases(self, context: Context) -> list[RelayCase]:
        return [case for case in CASES if context.settings.cases in case.name][:: 2 if context.settings.smoke else 1]

    def rounds(self, context: Context) -> int:
        """Samples to come."""
        return context.rounds(len(self._cases(context)), len(context.site.relay_targets()))

    def run(self, context: Context) -> Iterator[Sample]:
        """All cases."""
        context.say("R loading")
        with _loaded(context.site, context.settings.drained_bytes):
            yield from interleaved(self.name, context, self._cases(context), context.site.relay_targets(), measure)
