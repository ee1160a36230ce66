"""The results as tables in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table

from bench.results import Summary

COLUMNS = {
    "rate": "per s",
    "first_rate": "first fifth",
    "last_rate": "last fifth",
    "p50_us": "p50 µs",
    "p99_us": "p99 µs",
    "mongod_cpu_us": "mongod CPU µs",
    "whole_mongod_cpu_us": "with joins",
    "proxy_cpu_us": "proxy CPU µs",
    "deferred_proxy_cpu_us": "its joins",
    "commands_per_1000": "commands ‰",
    "statements_per_1000": "statements ‰",
    "rows_per_bucket": "rows/bucket",
    "waiting_parts": "waiting parts",
    "settling_s": "settled s",
    "heavy_rate": "batches' rows per s",
    "read_rate": "reads per s",
    "read_p50_us": "read p50 µs",
    "read_p99_us": "read p99 µs",
    "series_p50_us": "series p50 µs",
    "series_p99_us": "series p99 µs",
    "count_p50_us": "count p50 µs",
    "count_p99_us": "count p99 µs",
    "lastpoint_p50_us": "last point p50 µs",
    "lastpoint_p99_us": "last point p99 µs",
    "median_ms": "ms",
    "storage_mb": "MB",
    "free_mb": "MB free",
    "count_ms": "count ms",
    "totals_ms": "totals ms",
    "load_per_s": "loaded per s",
    "megabytes_per_s": "MB per s",
    "proxy_memory_mb": "proxy MB",
    "proxy_growth_mb": "growth MB",
    "generator_load": "generator",
}


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def print_tables(console: Console, summaries: Sequence[Summary]) -> None:
    """One table a workload; ``±`` is the spread of the first column as part of its median."""
    for workload, group in groupby(summaries, key=lambda summary: summary.workload):
        members = list(group)
        if not any(name in summary.medians for summary in members for name in COLUMNS):
            continue
        shown = [name for name in COLUMNS if any(name in summary.medians for summary in members)]
        table = Table(title=workload, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("case", no_wrap=True)
        table.add_column("target", no_wrap=True)
        for name in shown:
            table.add_column(COLUMNS[name], justify="right")
        table.add_column("±", justify="right")
        previous = ""
        for summary in members:
            cells = [_number(summary.medians.get(name)) for name in shown]
            spread = next((summary.spreads[name] for name in shown if name in summary.spreads), 0.0)
            first = summary.case if summary.case != previous else ""
            table.add_row(first, summary.target, *cells, f"{spread:.0%}")
            previous = summary.case
        console.print(table)
