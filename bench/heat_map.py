"""Ratios of a grid as a heat map, written as SVG by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from bench.plots import NAMESPACE, STYLE
from bench.results import Summary, ratios
from bench.targets import PROXY

SEPARATOR: Final = " · "
"""Between the row and the column in the name of a case."""
LABEL_WIDTH, HEAD = 130, 150
WIDTH, HEIGHT = 46, 18
WORST: Final = 4.0
"""This ratio, or its inverse, has the full colour."""
WHITE, RED, GREEN = (255, 255, 255), (203, 52, 52), (46, 139, 87)


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A ratio for each row and column; ``more_is_better``: above 1 is green."""

    title: str
    values: Mapping[tuple[str, str], float]
    more_is_better: bool

    def svg(self) -> str:
        """The drawing."""
        rows = list(dict.fromkeys(row for row, _ in self.values))
        columns = list(dict.fromkeys(column for _, column in self.values))
        width, height = LABEL_WIDTH + WIDTH * len(columns) + 20, HEAD + HEIGHT * len(rows) + 12
        parts = [
            f"<svg xmlns='{NAMESPACE}' viewBox='0 0 {width} {height}' width='{width}' height='{height}'>",
            f"<title>{escape(self.title)}</title>",
            f"<rect width='{width}' height='{height}' fill='white'/>",
            f"<text x='12' y='20' {STYLE} font-weight='bold'>{escape(self.title)}</text>",
        ]
        for number, column in enumerate(columns):
            x, y = LABEL_WIDTH + WIDTH * number + WIDTH // 2 + 4, HEAD - 8
            parts.append(f"<text transform='translate({x} {y}) rotate(-60)' {STYLE}>{escape(column)}</text>")
        for line, row in enumerate(rows):
            y = HEAD + HEIGHT * line
            parts.append(f"<text x='{LABEL_WIDTH - 8}' y='{y + 13}' text-anchor='end' {STYLE}>{escape(row)}</text>")
            for number, column in enumerate(columns):
                if (value := self.values.get((row, column))) is not None:
                    parts += self._cell(LABEL_WIDTH + WIDTH * number, y, value)
        return "\n".join([*parts, "</svg>", ""])

    def _cell(self, x: int, y: int, value: float) -> Sequence[str]:
        fill = colour(value if self.more_is_better else 1 / max(value, 1e-9))
        return (
            f"<rect x='{x}' y='{y}' width='{WIDTH - 1}' height='{HEIGHT - 1}' fill='{fill}'/>",
            f"<text x='{x + WIDTH / 2:g}' y='{y + 13}' text-anchor='middle' {STYLE}>{value:.2f}</text>",
        )


def colour(goodness: float) -> str:
    """White at 1, red below it and green above it, on a logarithmic scale."""
    part = max(-1.0, min(1.0, math.log(max(goodness, 1e-9)) / math.log(WORST)))
    end = GREEN if part > 0 else RED
    mixed = (round(white + (full - white) * abs(part)) for white, full in zip(WHITE, end, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


MAPS: Final = (
    ("rate", "measurements a second over native", True),
    ("whole_mongod_cpu_us", "mongod CPU of a measurement, joins included, over native", False),
)


def write_heat_maps(summaries: Sequence[Summary], directory: Path) -> list[Path]:
    """One file for each metric, if G was measured."""
    found = [ratio for ratio in ratios(summaries) if ratio.workload == "G" and ratio.target == PROXY]
    written = []
    for metric, what, more_is_better in MAPS:
        values = {}
        for ratio in found:
            row, _, column = ratio.case.partition(SEPARATOR)
            if ratio.metric == metric:
                values[row, column] = ratio.value
        if values:
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / f"g-{metric.removesuffix('_us').replace('_', '-')}.svg"
            path.write_text(HeatMap(f"G: {what}", values, more_is_better).svg())
            written.append(path)
    return written
