"""Curves of long loads over time, written as SVG by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from bench.plots import COLOURS, NAMESPACE, STYLE
from bench.results import Sample
from bench.sampling import Curve
from bench.targets import NATIVE

WIDTH, HEIGHT, GAP, HEAD, LEFT = 300, 120, 50, 56, 60
COLUMNS: Final = 2
NATIVE_COLOUR: Final = "#d95f02"

PANELS: Final[Mapping[str, str]] = {
    "rate": "measurements a second",
    "p99_ms": "p99 of inserts, ms",
    "series_ms": "p99 of reading a series, ms",
    "count_ms": "p99 of counting a series, ms",
    "lastpoint_ms": "p99 of the last point, ms",
    "buckets": "buckets, with parts that wait",
    "mongod_cores": "cores of mongod",
    "dirty_mb": "dirty MB in the server's cache",
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One metric over time, a line for each target."""

    title: str
    lines: Mapping[str, Curve]

    def svg(self, x: int, y: int) -> Sequence[str]:
        """The drawing, with its upper left corner there."""
        end = max((point[0] for line in self.lines.values() for point in line), default=1.0) or 1.0
        top = max((point[1] for line in self.lines.values() for point in line), default=1.0) * 1.05 or 1.0
        parts = [
            f"<text x='{x}' y='{y - 6}' {STYLE}>{escape(self.title)}</text>",
            f"<rect x='{x}' y='{y}' width='{WIDTH}' height='{HEIGHT}' fill='none' stroke='#999'/>",
            f"<text x='{x - 4}' y='{y + 10}' text-anchor='end' {STYLE}>{top:,.3g}</text>",
            f"<text x='{x - 4}' y='{y + HEIGHT}' text-anchor='end' {STYLE}>0</text>",
            f"<text x='{x + WIDTH}' y='{y + HEIGHT + 14}' text-anchor='end' {STYLE}>{end:.0f} s</text>",
        ]
        for target, line in self.lines.items():
            points = " ".join(
                f"{x + WIDTH * seconds / end:.1f},{y + HEIGHT * (1 - value / top):.1f}" for seconds, value in line
            )
            parts.append(f"<polyline points='{points}' fill='none' stroke='{colour_of(target)}' stroke-width='1.5'/>")
        return parts


def colour_of(target: str) -> str:
    """The colour of a target's line."""
    return NATIVE_COLOUR if target == NATIVE else COLOURS.get(target, "#7fb07f")


def curves_svg(title: str, by_target: Mapping[str, Mapping[str, Curve]]) -> str:
    """All panels of one case."""
    panels = [
        Panel(text, {target: curves[name] for target, curves in by_target.items() if curves.get(name)})
        for name, text in PANELS.items()
        if any(curves.get(name) for curves in by_target.values())
    ]
    width = LEFT + COLUMNS * (WIDTH + LEFT)
    height = HEAD + -(-len(panels) // COLUMNS) * (HEIGHT + GAP)
    parts = [
        f"<svg xmlns='{NAMESPACE}' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>",
        f"<title>{escape(title)}</title>",
        f"<rect width='{width}' height='{height}' fill='white'/>",
        f"<text x='12' y='20' {STYLE} font-weight='bold'>{escape(title)}</text>",
    ]
    for number, target in enumerate(by_target):
        x = width - 100 * (len(by_target) - number)
        parts.append(f"<rect x='{x}' y='11' width='11' height='11' fill='{colour_of(target)}'/>")
        parts.append(f"<text x='{x + 16}' y='21' {STYLE}>{escape(target)}</text>")
    for number, panel in enumerate(panels):
        row, column = divmod(number, COLUMNS)
        parts += panel.svg(LEFT + column * (WIDTH + LEFT), HEAD + row * (HEIGHT + GAP))
    return "\n".join([*parts, "</svg>", ""])


def write_curves(samples: Sequence[Sample], directory: Path) -> list[Path]:
    """One file for each case that has curves: those of its first round."""
    cases: dict[tuple[str, str], dict[str, Mapping[str, Curve]]] = {}
    for sample in samples:
        if sample.curves:
            cases.setdefault((sample.workload, sample.case), {}).setdefault(sample.target, sample.curves)
    written = []
    for (workload, case), by_target in cases.items():
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{workload.lower()}-{re.sub(r'[ /]', '-', case)}.svg"
        path.write_text(curves_svg(f"{workload}: {case}", by_target))
        written.append(path)
    return written
