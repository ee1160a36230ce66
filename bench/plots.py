"""The results as bar charts, written as SVG by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from bench.results import Summary, ratios

COLOURS = {"proxy": "#1f77b4", "plain": "#b0b0b0"}
DEFAULT_COLOUR = "#7fb07f"
LABEL_WIDTH = 230
BAR_WIDTH = 430
VALUE_WIDTH = 150
BAR_HEIGHT = 15
GAP = 10
HEAD = 54
NAMESPACE = "http://www.w3.org/2000/svg"
STYLE = "font-family='sans-serif' font-size='12' fill='#222'"


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: a ratio, and how far its rounds lay apart as part of the median."""

    target: str
    value: float
    spread: float


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars by case; ``reference`` is what 1 stands for."""

    title: str
    reference: str
    groups: Mapping[str, Sequence[Bar]] = field(default_factory=dict)

    def svg(self) -> str:
        """The drawing."""
        bars = [bar for group in self.groups.values() for bar in group]
        top = max(1.25, max(bar.value for bar in bars) * 1.08)
        height = HEAD + sum(len(group) * BAR_HEIGHT + GAP for group in self.groups.values()) + 12
        width = LABEL_WIDTH + BAR_WIDTH + VALUE_WIDTH

        def at(value: float) -> float:
            return LABEL_WIDTH + BAR_WIDTH * min(value, top) / top

        parts = [
            f"<svg xmlns='{NAMESPACE}' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>",
            f"<title>{escape(self.title)}</title>",
            f"<rect width='{width}' height='{height}' fill='white'/>",
            f"<text x='12' y='20' {STYLE} font-weight='bold'>{escape(self.title)}</text>",
            *self._legend(),
        ]
        y = HEAD
        for case, group in self.groups.items():
            middle = y + len(group) * BAR_HEIGHT / 2 + 4
            parts.append(f"<text x='{LABEL_WIDTH - 8}' y='{middle:g}' text-anchor='end' {STYLE}>{escape(case)}</text>")
            for bar in group:
                parts += _bar(bar, y, at)
                y += BAR_HEIGHT
            y += GAP
        parts.append(
            f"<line x1='{at(1):.1f}' x2='{at(1):.1f}' y1='{HEAD - 8}' y2='{height - 8}' stroke='#c00' "
            "stroke-dasharray='4 3'/>"
        )
        return "\n".join([*parts, "</svg>", ""])

    def _legend(self) -> list[str]:
        names = list(dict.fromkeys(bar.target for group in self.groups.values() for bar in group))
        parts, x = [], 12
        for name in names:
            parts.append(f"<rect x='{x}' y='29' width='11' height='11' fill='{COLOURS.get(name, DEFAULT_COLOUR)}'/>")
            parts.append(f"<text x='{x + 16}' y='39' {STYLE}>{escape(name)}</text>")
            x += 34 + 7 * len(name)
        return [*parts, f"<text x='{x + 8}' y='39' {STYLE}>dashed line: {escape(self.reference)} = 1</text>"]


def _bar(bar: Bar, y: float, at: Callable[[float], float]) -> list[str]:
    colour = COLOURS.get(bar.target, DEFAULT_COLOUR)
    end = at(bar.value)
    low, high = at(bar.value * (1 - bar.spread / 2)), at(bar.value * (1 + bar.spread / 2))
    middle = y + BAR_HEIGHT / 2
    length = max(1.0, end - LABEL_WIDTH)
    return [
        f"<rect x='{LABEL_WIDTH}' y='{y + 1}' width='{length:.1f}' height='{BAR_HEIGHT - 2}' fill='{colour}'/>",
        f"<line x1='{low:.1f}' x2='{high:.1f}' y1='{middle:g}' y2='{middle:g}' stroke='#222'/>",
        f"<text x='{max(end, high) + 6:.1f}' y='{y + 12}' {STYLE}>{bar.value:.3g}</text>",
    ]


@dataclass(frozen=True, slots=True)
class Plot:
    """Which ratios make a chart."""

    file: str
    workload: str
    metric: str
    title: str


PLOTS = (
    Plot("w1-rate", "W1", "rate", "W1: single-document inserts a second, as a multiple of native (more is better)"),
    Plot("w1-cpu", "W1", "mongod_cpu_us", "W1: mongod CPU per measurement, as a part of native (less is better)"),
    Plot("w1-p99", "W1", "p99_us", "W1: p99 latency, as a multiple of native (less is better)"),
    Plot("w2-rate", "W2", "rate", "W2: batches, measurements a second, as a multiple of native (more is better)"),
    Plot("w2-rows", "W2", "rows_per_bucket", "W2: rows per bucket, as a multiple of native (more is better)"),
    Plot("w3-rate", "W3", "rate", "W3: writes during reads, as a multiple of native (more is better)"),
    Plot("w3-reads", "W3", "read_p50_us", "W3: read latency during writes, as a multiple of native (less is better)"),
    Plot("q-time", "Q", "median_ms", "Q: time of a query, as a multiple of native (less is better)"),
    Plot("s-size", "S", "storage_mb", "S: storage, as a multiple of native (less is better)"),
    Plot("s-count", "S", "count_ms", "S: count per period, time as a multiple of native (less is better)"),
    Plot("s-totals", "S", "totals_ms", "S: totals per period and command, time as a multiple of native"),
    Plot("r-rate", "R", "rate", "R: ordinary commands a second, as a part of direct (more is better)"),
    Plot("c-cpu", "C", "mongod_cpu_us", "C: mongod CPU per measurement, as a part of native (less is better)"),
)


def write_plots(summaries: Sequence[Summary], directory: Path) -> list[Path]:
    """One file for each plot that the results have figures for."""
    found = ratios(summaries)
    written = []
    for plot in PLOTS:
        groups: dict[str, list[Bar]] = {}
        reference = ""
        for ratio in found:
            if (ratio.workload, ratio.metric) == (plot.workload, plot.metric):
                groups.setdefault(ratio.case, []).append(Bar(ratio.target, ratio.value, ratio.spread))
                reference = ratio.reference
        if groups:
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / f"{plot.file}.svg"
            path.write_text(Chart(plot.title, reference, groups).svg())
            written.append(path)
    return written
