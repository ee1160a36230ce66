"""Plots as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.results import Summary


def write_plots(summaries: Sequence[Summary], directory: Path) -> list[Path]:
    """Nothing yet."""
    return []
