"""Whether a kind of read is fast enough, and which kinds need not be."""

from __future__ import annotations

import re
from collections import Counter
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
    r".* · \$sample": "the server tries random buckets and falls back to a scan; both have this plan",
    r".* · (\$group )?latest( rows| pairs)?( of some)?( by .*\$(first|last|top|topN of one)|, then sorted)": (
        "the latest bucket of each group is fetched by its id, which is faster only among more or larger buckets"
    ),
    r".* · (find )?small batches( of everything)?": "the way through the proxy for each batch",
}
"""Patterns of whole case names, and why these reads are slower."""

AS_STORED = "past the proxy, the server takes as long for these buckets"

PAST = "past_ms"
"""Metric of the proxy: what the same read of the same buckets takes past the proxy, if it is slower than allowed."""


def allowed_ms(native_ms: float) -> float:
    """The longest time that a read may take which natively takes ``native_ms``."""
    return FACTOR * native_ms + HOP_MS


@dataclass(frozen=True, slots=True)
class Slower:
    """A read that is slower than allowed. ``reason``: empty if there is none.

    ``past_ms``: what the server takes for the same read of the same buckets past the proxy, if it was measured.
    """

    case: str
    native_ms: float
    proxy_ms: float
    past_ms: float | None
    reason: str


def slower(summaries: Sequence[Summary]) -> Iterator[Slower]:
    """The reads of K that are slower than allowed."""
    past = {each.case: each.medians[PAST] for each in summaries if each.workload == "K" and PAST in each.medians}
    for case, (native_ms, proxy_ms) in pairs(summaries).items():
        if proxy_ms > allowed_ms(native_ms):
            past_ms = past.get(case)
            yield Slower(case, native_ms, proxy_ms, past_ms, reason_for(case, proxy_ms, past_ms))


def pairs(summaries: Sequence[Summary]) -> dict[str, tuple[float, float]]:
    """Milliseconds natively and through the proxy of each read of K."""
    found: dict[str, dict[str, float]] = {}
    for summary in summaries:
        if summary.workload == "K" and "least_ms" in summary.medians:
            found.setdefault(summary.case, {})[summary.target] = summary.medians["least_ms"]
    return {case: (each[NATIVE], each[PROXY]) for case, each in found.items() if {NATIVE, PROXY} <= each.keys()}


def reason_for(case: str, proxy_ms: float, past_ms: float | None) -> str:
    """Why a case is excepted; empty if it is not."""
    listed = next((reason for pattern, reason in EXCEPTIONS.items() if re.fullmatch(pattern, case)), "")
    if listed or past_ms is None or proxy_ms > allowed_ms(past_ms):
        return listed
    return AS_STORED


def print_sweep(console: Console, summaries: Sequence[Summary]) -> None:
    """The reads that are slower than allowed, and how many there are of all."""
    measured = pairs(summaries)
    if not measured:
        return
    late = list(slower(summaries))
    reasons = Counter(each.reason or "no reason known" for each in late)
    title = f"K: {len(measured)} reads, {len(late)} slower than {FACTOR:g} × native + {HOP_MS:g} ms"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("case", "native ms", "past ms", "proxy ms", "ratio", "reason"):
        table.add_column(name, no_wrap=name != "reason")
    for each in late:
        past = "" if each.past_ms is None else f"{each.past_ms:.2f}"
        ratio = f"{each.proxy_ms / each.native_ms:.2f}"
        table.add_row(each.case, f"{each.native_ms:.2f}", past, f"{each.proxy_ms:.2f}", ratio, each.reason)
    console.print(table)
    for reason, number in reasons.most_common():
        console.print(f"{number:5} {reason}", highlight=False)
