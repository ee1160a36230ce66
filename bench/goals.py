"""What the proxy is meant to reach, as ratios, and whether a run reached it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table

from bench.results import Summary
from bench.targets import NATIVE, PROXY


@dataclass(frozen=True, slots=True)
class Goal:
    """The proxy's median of ``metric`` over the reference's, in the cases whose whole name matches."""

    workload: str
    cases: str
    metric: str
    bound: float
    at_least: bool = False
    reference: str = NATIVE

    def reached(self, ratio: float) -> bool:
        """Whether this ratio is good enough."""
        return ratio >= self.bound if self.at_least else ratio <= self.bound


PUBLISHED_LAYOUTS = ("document per row", "document per series and day", "packed per span")

GOALS = (
    Goal("W1", r"\w+ 128c own", "rate", 3.0, at_least=True),
    Goal("W1", r"\w+ 512c 10000s", "rate", 3.0, at_least=True),
    Goal("W1", r"\w+ 128c own", "mongod_cpu_us", 0.2),
    Goal("W1", r"\w+ 1c own", "p50_us", 2.0),
    Goal("W1", r"\w+ (128|512)c .*", "p99_us", 1.0),
    Goal("W1", r"\w+ 128c .*", "commands_per_1000", 0.05),
    Goal("W2", r"\w+ \d+c (1|100)s x1000", "rate", 1.0, at_least=True),
    Goal("W2", r"\w+ \d+c 10000s x1000", "rate", 1.5, at_least=True),
    Goal("W2", r".* (two-days|late)", "rows_per_bucket", 5.0, at_least=True),
    Goal("W2", r".* (two-days|late)", "rate", 1.0, at_least=True),
    Goal("N", r"beside .*", "p99_us", 1.0),
    Goal("N", r"beside .*", "heavy_rate", 1.0, at_least=True),
    Goal("Q", r"lastpoint|group by meta", "median_ms", 0.5),
    Goal("Q", r"(?!lastpoint|group by meta|loading).*", "median_ms", 1.1),
    Goal("S", r"scale [\d.e-]+", "storage_mb", 1.0),
    Goal("S", r"scale [\d.e-]+", "storage_mb", 0.1, reference="document per row"),
    *(
        Goal("S", r".* queries", metric, 1.0, reference=layout)
        for metric in ("count_ms", "totals_ms")
        for layout in PUBLISHED_LAYOUTS
    ),
    Goal("R", r"(find|insert)_one 64c", "rate", 0.8, at_least=True, reference="direct"),
    Goal("R", r"drain .*", "megabytes_per_s", 0.95, at_least=True, reference="direct"),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A goal and what a case made of it."""

    goal: Goal
    case: str
    ratio: float
    spread: float

    @property
    def reached(self) -> bool:
        """Whether it is good enough."""
        return self.goal.reached(self.ratio)


def judge(summaries: Sequence[Summary]) -> list[Verdict]:
    """Every goal in every case that was measured with both targets."""
    by_place = {(summary.workload, summary.case, summary.target): summary for summary in summaries}
    found = []
    for goal in GOALS:
        for (workload, case, target), summary in by_place.items():
            if workload != goal.workload or target != PROXY or not re.fullmatch(goal.cases, case):
                continue
            reference = by_place.get((workload, case, goal.reference))
            if reference is None or not reference.medians.get(goal.metric) or goal.metric not in summary.medians:
                continue
            ratio = summary.medians[goal.metric] / reference.medians[goal.metric]
            spread = max(summary.spreads[goal.metric], reference.spreads[goal.metric])
            found.append(Verdict(goal, case, ratio, spread))
    return found


def print_goals(console: Console, verdicts: Sequence[Verdict]) -> None:
    """One line for each goal and case."""
    if not verdicts:
        return
    table = Table(title="Goals", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("workload", "case", "metric", "against", "wanted", "is", "±", ""):
        table.add_column(name, no_wrap=True)
    for verdict in verdicts:
        goal = verdict.goal
        wanted = f"{'≥' if goal.at_least else '≤'} {goal.bound:g}"
        mark = "reached" if verdict.reached else "missed"
        cells = (wanted, f"{verdict.ratio:.3g}", f"{verdict.spread:.0%}", mark)
        table.add_row(goal.workload, verdict.case, goal.metric, goal.reference, *cells)
    console.print(table)
