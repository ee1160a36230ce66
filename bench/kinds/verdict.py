"""Whether a kind of read is fast enough, and which kinds need not be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from bench.results import Summary
from bench.targets import NATIVE, PROXY

FACTOR = 1.15
HOP_MS = 0.25
"""The time of the way through the proxy."""

EXCEPTIONS: Mapping[str, str] = {
    r".* · \$group \$max of object": "native returns objects that were never stored (H4); the proxy unpacks",
    r".* · \$expr (sparse )?measurement below": "native loses rows (H3); the proxy has no bound",
    r".* · find the last hour, collation": "the optimiser is inhibited under another collation (H3)",
    r".* · \$expr times of a (text|number)": "the server's bound on _id might wrap (H2); the proxy bounds control only",
}
"""Patterns of whole case names, and why these reads are slower."""


def allowed_ms(native_ms: float) -> float:
    """The longest time that a read may take which natively takes ``native_ms``."""
    return FACTOR * native_ms + HOP_MS


@dataclass(frozen=True, slots=True)
class Slower:
    """A read that is slower than allowed. ``reason``: empty if there is none."""

    case: str
    native_ms: float
    proxy_ms: float
    reason: str


def slower(summaries: Sequence[Summary]) -> Iterator[Slower]:
    """The reads of K that are slower than allowed."""
    for case, (native_ms, proxy_ms) in pairs(summaries).items():
        if proxy_ms > allowed_ms(native_ms):
            yield Slower(case, native_ms, proxy_ms, reason_for(case))


def pairs(summaries: Sequence[Summary]) -> dict[str, tuple[float, float]]:
    """Milliseconds natively and through the proxy of each read of K."""
    found: dict[str, dict[str, float]] = {}
    for summary in summaries:
        if summary.workload == "K" and "least_ms" in summary.medians:
            found.setdefault(summary.case, {})[summary.target] = summary.medians["least_ms"]
    return {case: (each[NATIVE], each[PROXY]) for case, each in found.items() if {NATIVE, PROXY} <= each.keys()}


def reason_for(case: str) -> str:
    """Why a case is excepted; empty if it is not."""
    return next((reason for pattern, reason in EXCEPTIONS.items() if re.fullmatch(pattern, case)), "")


def print_sweep(console: Console, summaries: Sequence[Summary]) -> None:
    """The reads that are slower than allowed, and how many there are of all."""
    measured = pairs(summaries)
    if not measured:
        return
    late = list(slower(summaries))
    title = f"K: {len(measured)} reads, {len(late)} slower than {FACTOR:g} × native + {HOP_MS:g} ms"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("case", "native ms", "proxy ms", "ratio", "reason"):
        table.add_column(name, no_wrap=name != "reason")
    for each in late:
        ratio = each.proxy_ms / each.native_ms
        table.add_row(each.case, f"{each.native_ms:.2f}", f"{each.proxy_ms:.2f}", f"{ratio:.2f}", each.reason)
    console.print(table)
