"""Which cells of G are worse than native."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from bench.results import Summary, ratios
from bench.targets import PROXY

SINGLE_RATE: Final = 0.7
"""Single documents through one connection: each waits for the hop."""
MOST_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Worse:
    """A cell whose ``ratio`` is worse than ``bound``."""

    case: str
    metric: str
    ratio: float
    bound: float

    @property
    def badness(self) -> float:
        """How far it is off: above 1."""
        return self.bound / self.ratio if self.metric == "rate" else self.ratio / self.bound


def worse(summaries: Sequence[Summary]) -> Iterator[Worse]:
    """The cells below the rate or above the CPU that they may have."""
    for ratio in ratios(summaries):
        if ratio.workload != "G" or ratio.target != PROXY:
            continue
        if ratio.metric == "rate":
            bound = SINGLE_RATE if " x1 " in ratio.case and " 1c " in ratio.case else 1.0
            if ratio.value < bound:
                yield Worse(ratio.case, ratio.metric, ratio.value, bound)
        elif ratio.metric == "whole_mongod_cpu_us" and ratio.value > 1.0:
            yield Worse(ratio.case, ratio.metric, ratio.value, 1.0)


def print_grid(console: Console, summaries: Sequence[Summary]) -> None:
    """How many cells are worse than native in what, and the worst of them."""
    cells = sum(summary.workload == "G" and summary.target == PROXY for summary in summaries)
    if not cells:
        return
    found = sorted(worse(summaries), key=lambda each: -each.badness)
    slow = sum(each.metric == "rate" for each in found)
    title = f"G: {cells} cells, {slow} below the rate, {len(found) - slow} above the CPU that they may have"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("case", "metric", "bound", "is"):
        table.add_column(name, no_wrap=True)
    for each in found[:MOST_SHOWN]:
        table.add_row(each.case, each.metric, f"{each.bound:g}", f"{each.ratio:.2f}")
    console.print(table)
