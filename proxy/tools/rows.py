"""Rows to be imported, and what was found in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

Mark: TypeAlias = Mapping[str, Any]
"""A position in a source, as JSON."""


class Broken(Exception):
    """The source cannot be read any further; the message says where and why."""


class Row(NamedTuple):
    """One document. ``where``: its line, or its number; ``end``: how much of the source was read with it.

    ``skip``: how many rows that end at the same place, or begin before ``end``, have been read with it.
    """

    document: bytes
    where: int
    end: int
    skip: int = 0


@dataclass(frozen=True, slots=True)
class BadRow:
    """What is in the place of a row: not a document, or refused. ``text``: what was read, as far as it can be shown."""

    where: int
    end: int
    reason: str
    text: str
    skip: int = 0


AnyRow: TypeAlias = Row | BadRow


class Source(Protocol):
    """Where rows come from."""

    unit: str
    """What ``Row.where`` counts: "line" or "document"."""
    total: int
    """The last ``Row.end``, as far as it is known; 0 if it is not."""

    def fingerprint(self) -> Mapping[str, Any]:
        """What tells this source from another; it does not change between two runs of one import."""
        ...

    def rows(self, mark: Mark) -> Iterator[AnyRow]:
        """The rows after ``mark``, which is empty at the beginning. Raises ``Broken``."""
        ...

    def mark_after(self, entry: AnyRow) -> Mark:
        """The position after a row that ``rows`` has yielded."""
        ...
