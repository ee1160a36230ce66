"""The figures of a bench as a table and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final

from proxy.settings.wording import counted
from proxy.tools.bench.running import BenchOptions, Measured
from proxy.tools.bench.tally import PERCENTILES, Latencies, Ratio, Tally, median, ratio_of

_HEAD: Final = ("", "rows/s", "p50 ms", "p95 ms", "p99 ms", "errors", "client CPU")
_READ_HEAD: Final = ("reads/s", "p50 ms", "p95 ms", "p99 ms")


def rates(measured: Measured) -> list[float]:
    """The rate of each round."""
    return [tally.rate for tally in measured.rounds]


def ratio(measured: Mapping[str, Measured]) -> Ratio | None:
    """How many times as many rows the proxy stores in a second."""
    return ratio_of(rates(measured["proxy"]), rates(measured["direct"]))


def table(options: BenchOptions, measured: Mapping[str, Measured]) -> str:
    """The figures for people; ends with a line break."""
    shape = options.shape
    load = (
        f"{counted(options.connections, 'connection')}, {counted(options.batch_rows, 'row')} in a command, "
        f"{options.series:,} series, shape {shape.name} ({shape.document_bytes} bytes), "
        f"{counted(options.rounds, 'round')} of {options.seconds:g} s"
    )
    lines = [load, ""]
    has_reads = options.readers > 0
    rows = [(*_HEAD, *(_READ_HEAD if has_reads else ()))]
    for name, each in measured.items():
        rows.append((name, *_cells(each, has_reads=has_reads)))
    lines += _aligned(rows)
    lines += ["", _ratio_line(measured)]
    for name, each in measured.items():
        lines += _remarks(name, each)
    return "\n".join(lines) + "\n"


def _cells(measured: Measured, *, has_reads: bool) -> tuple[str, ...]:
    whole = measured.whole
    cells = (
        f"{median(rates(measured)):,.0f}",
        *_latencies(whole.inserting),
        str(whole.errors.total()),
        f"{share(whole):.0%}",
    )
    if not has_reads:
        return cells
    return (*cells, f"{whole.reads / whole.seconds:,.0f}" if whole.seconds else "0", *_latencies(whole.reading))


def _latencies(latencies: Latencies) -> list[str]:
    found = [latencies.percentile_ms(percent) for percent in PERCENTILES]
    return ["–" if each is None else f"{each:.3g}" if each < 100 else f"{each:.0f}" for each in found]


def share(tally: Tally) -> float:
    """The part of all cores that the load processes have used."""
    return tally.cpu_seconds / tally.seconds / (os.cpu_count() or 1) if tally.seconds else 0.0


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if not at else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _ratio_line(measured: Mapping[str, Measured]) -> str:
    found = ratio(measured)
    if found is None:
        return "no ratio: a side has stored nothing in a round"
    return (
        f"proxy / direct: {found.median:.2f} times as many rows per second "
        f"({found.least:.2f} to {found.greatest:.2f} in single rounds)"
    )


def _remarks(name: str, measured: Measured) -> list[str]:
    whole, stored = measured.whole, measured.stored
    expected = measured.acknowledged
    remarks = []
    if stored is not None:
        unknown = f", {expected.unknown_rows:,} of unknown outcome" if expected.unknown_rows else ""
        verdict = "all acknowledged rows are stored" if stored.is_complete else "STORED AND ACKNOWLEDGED ROWS DIFFER"
        checked = "" if expected.unknown_rows else " with their values"
        remarks.append(
            f"{name}: {verdict}{checked if stored.is_complete else ''}: {expected.rows:,} acknowledged{unknown}, "
            f"{stored.rows:,} stored"
        )
    errors = whole.errors + measured.warm_up.errors
    if errors:
        remarks.append(f"{name}: errors: " + ", ".join(f"{kind}: {count:,}" for kind, count in errors.most_common()))
    if whole.is_limited_by_client:
        remarks.append(
            f"{name}: the client is the bottleneck ({whole.busiest_share:.0%} of one core in one load process): the "
            "server could be faster; use more --processes, or another machine with more cores"
        )
    return remarks


def document(options: BenchOptions, measured: Mapping[str, Measured], uris: Mapping[str, str]) -> dict[str, Any]:
    """The figures for programs. ``uris`` are those of the sides, without passwords."""
    found = ratio(measured)
    return {
        "version": metadata.version("tsproxy"),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()},
        "options": {
            "database": options.database,
            "connections": options.connections,
            "seconds": options.seconds,
            "rounds": options.rounds,
            "batch_rows": options.batch_rows,
            "series": options.series,
            "readers": options.readers,
            "processes": options.process_count,
            "warm_up": options.fills,
            "shape": options.shape.name,
            "document_bytes": options.shape.document_bytes,
        },
        "sides": {name: {"uri": uris[name], **_side(each)} for name, each in measured.items()},
        "ratio": None if found is None else {"median": found.median, "least": found.least, "greatest": found.greatest},
    }


def _side(measured: Measured) -> dict[str, Any]:
    stored, expected = measured.stored, measured.acknowledged
    return {
        "rows_per_second": median(rates(measured)),
        **_tally(measured.whole),
        "rounds": [_tally(each) for each in measured.rounds],
        "warm_up": _tally(measured.warm_up),
        "acknowledged_rows": expected.rows,
        "unknown_rows": expected.unknown_rows,
        "stored_rows": None if stored is None else stored.rows,
        "values_agree": None if stored is None or expected.unknown_rows else stored.check == expected.check,
        "is_complete": None if stored is None else stored.is_complete,
    }


def _tally(tally: Tally) -> dict[str, Any]:
    return {
        "seconds": tally.seconds,
        "rows": tally.rows,
        "commands": tally.commands,
        "rate": tally.rate,
        "insert_ms": _percentiles(tally.inserting),
        "reads": tally.reads,
        "read_ms": _percentiles(tally.reading),
        "errors": dict(tally.errors),
        "client_cpu_share": share(tally),
        "busiest_process_share": tally.busiest_share,
        "is_limited_by_client": tally.is_limited_by_client,
    }


def _percentiles(latencies: Latencies) -> dict[str, float | None]:
    return {f"p{percent}": latencies.percentile_ms(percent) for percent in PERCENTILES}
