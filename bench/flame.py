"""A flame graph as SVG: stacks from bottom to top, width is the share of the samples; titles show numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from zlib import crc32

from bench.plots import NAMESPACE

WIDTH = 1600
ROW = 16
NARROWEST = 0.4


@dataclass(slots=True)
class Frame:
    """A function as called from the frames below it."""

    name: str
    samples: int = 0
    calls: dict[str, Frame] = field(default_factory=dict)

    def add(self, stack: Sequence[str], count: int) -> None:
        """Count samples of a stack, outermost frame first."""
        self.samples += count
        if stack:
            self.calls.setdefault(stack[0], Frame(stack[0])).add(stack[1:], count)

    def depth(self) -> int:
        """Rows that this frame and what it calls take."""
        return 1 + max((call.depth() for call in self.calls.values()), default=0)

    def svg(self) -> str:
        """The drawing, with this frame as the lowest row."""
        height = self.depth() * ROW + 4
        parts = [
            f"<svg xmlns='{NAMESPACE}' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}'>",
            f"<rect width='{WIDTH}' height='{height}' fill='#fdfdf5'/>",
            "<g font-family='monospace' font-size='11'>",
        ]
        self.draw(parts, 0.0, height - ROW - 2, WIDTH / max(1, self.samples), self.samples)
        return "\n".join([*parts, "</g></svg>", ""])

    def draw(self, parts: list[str], x: float, y: float, scale: float, total: int) -> None:
        """Add this frame at ``x``, ``y`` and what it calls above it; ``scale`` is the width of a sample."""
        width = self.samples * scale
        if width < NARROWEST:
            return
        shown = escape(self.name[: max(0, int(width / 6.7))])
        hue = crc32(self.name.split(" ")[0].encode()) % 50
        parts.append(
            f"<g><title>{escape(self.name)}: {self.samples / total:.1%}</title>"
            f"<rect x='{x:.1f}' y='{y:g}' width='{width:.1f}' height='{ROW - 1}' fill='hsl({hue},85%,68%)'/>"
            f"<text x='{x + 2:.1f}' y='{y + 12:g}'>{shown}</text></g>"
        )
        for call in sorted(self.calls.values(), key=lambda call: call.name):
            call.draw(parts, x, y - ROW, scale, total)
            x += call.samples * scale
