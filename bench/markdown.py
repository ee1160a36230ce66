"""The ratios of a run as tables for ``docs/benchmarks.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.results import Ratio, Summary, ratios

COLUMNS = {
    "W1": ("rate", "p50_us", "p99_us", "mongod_cpu_us", "whole_mongod_cpu_us", "commands_per_1000"),
    "W2": ("rate", "mongod_cpu_us", "whole_mongod_cpu_us", "rows_per_bucket", "statements_per_1000"),
    "W3": ("rate", "p99_us", "read_rate", "read_p50_us", "read_p99_us"),
    "N": ("p50_us", "p99_us", "heavy_rate"),
    "L": (
        "rate",
        "first_rate",
        "last_rate",
        "p99_us",
        "mongod_cpu_us",
        "whole_mongod_cpu_us",
        "read_p50_us",
        "read_p99_us",
    ),
    "Q": ("median_ms", "load_per_s", "storage_mb"),
    "U": ("median_ms", "mongod_cpu_us"),
    "S": ("storage_mb", "free_mb", "load_per_s", "count_ms", "totals_ms"),
    "R": ("rate", "p50_us", "p99_us", "megabytes_per_s"),
    "C": ("rate", "p99_us", "mongod_cpu_us", "commands_per_1000"),
}
TITLES = {
    "rate": "rate",
    "first_rate": "first fifth",
    "last_rate": "last fifth",
    "p50_us": "p50",
    "p99_us": "p99",
    "mongod_cpu_us": "mongod CPU",
    "whole_mongod_cpu_us": "with joins",
    "commands_per_1000": "commands",
    "statements_per_1000": "statements",
    "rows_per_bucket": "rows per bucket",
    "heavy_rate": "rate of the batches",
    "read_rate": "read rate",
    "read_p50_us": "read p50",
    "read_p99_us": "read p99",
    "median_ms": "time",
    "load_per_s": "loading rate",
    "storage_mb": "storage",
    "free_mb": "free",
    "count_ms": "count",
    "totals_ms": "totals",
    "megabytes_per_s": "MB a second",
}


def markdown(summaries: Sequence[Summary]) -> str:
    """A table for each workload; a cell is the median over the reference's and, in brackets, the spread."""
    found = ratios(summaries)
    parts = [_table(workload, [ratio for ratio in found if ratio.workload == workload]) for workload in COLUMNS]
    return "\n".join(part for part in parts if part)


def _table(workload: str, found: Sequence[Ratio]) -> str:
    if not found:
        return ""
    metrics = [name for name in COLUMNS[workload] if any(ratio.metric == name for ratio in found)]
    head = [f"**{workload}** (over {found[0].reference})", "target", *(TITLES[name] for name in metrics)]
    rows = [head, ["---"] * len(head), *_rows(metrics, found)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _rows(metrics: Sequence[str], found: Sequence[Ratio]) -> Iterator[list[str]]:
    by_place = {(ratio.case, ratio.target, ratio.metric): ratio for ratio in found}
    for case, target in dict.fromkeys((ratio.case, ratio.target) for ratio in found):
        cells = [by_place.get((case, target, name)) for name in metrics]
        yield [case, target, *(f"{one.value:.2g} ({one.spread:.0%})" if one else "" for one in cells)]
