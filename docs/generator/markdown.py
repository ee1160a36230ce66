"""Pieces of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def page(title: str, source: str, introduction: str) -> str:
    """The beginning of a page that is generated from ``source``."""
    note = f"<!-- Generated from {source} by `make reference`; do not edit. -->"
    return f"{note}\n# {title}\n\n{introduction.strip()}\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; ``|`` in cells is escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def code(text: str) -> str:
    """``text`` as code; empty text stays empty."""
    return f"`{text}`" if text else ""
