"""Numbers in sentences for people."""

from __future__ import annotations


def counted(number: int, word: str) -> str:
    """``1 row``, ``2,000 rows``."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"
