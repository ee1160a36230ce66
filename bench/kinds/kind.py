"""One kind of read, and the set that it reads."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Command = dict[str, Any]
Document = dict[str, Any]

PARTNER = "partner"
"""The ordinary collection that joins read: a document for each series."""

INDEXES: tuple[dict[str, int], ...] = ({"m.host": 1, "time": -1}, {"time": 1})
"""The indexes of the states with an index."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A command without its collection's name: the first key's value, and ``"@"`` elsewhere, is filled in.

    ``compares``: whether all rows are compared, or only their number, where the command does not determine more.
    ``only_plain_is_right``: native returns wrong rows (H2-H4), so rows are compared with those of an ordinary
    collection. ``needs_index``: it names an index.
    """

    name: str
    command: Command
    compares: Literal["rows", "number"] = "rows"
    only_plain_is_right: bool = False
    needs_index: bool = False

    def of(self, collection: str) -> Command:
        """The command on a collection."""
        first, *_ = self.command
        return {**_named(self.command, collection), first: collection}


def _named(value: Any, collection: str) -> Any:
    match value:
        case "@":
            return collection
        case Mapping():
            return {name: _named(inner, collection) for name, inner in value.items()}
        case list():
            return [_named(inner, collection) for inner in value]
        case _:
            return value


@dataclass(frozen=True, slots=True)
class Times:
    """When the measurements of the set begin and end."""

    first: dt.datetime
    last: dt.datetime

    def at(self, part: float) -> dt.datetime:
        """A time between both."""
        return self.first + (self.last - self.first) * part

    def window(self, part: float, until: float) -> Document:
        """A range of times, as an operand."""
        return {"$gte": self.at(part), "$lt": self.at(until)}


def aggregate(name: str, *pipeline: Document, **more: Any) -> Kind:
    """A kind of ``aggregate``; ``options`` in ``more`` are those of the command, others those of ``Kind``."""
    options = more.pop("options", {})
    return Kind(name, {"aggregate": "", "pipeline": list(pipeline), "cursor": {}, **options}, **more)


def find(name: str, query: Document | None = None, *, compares: Literal["rows", "number"] = "rows",
         needs_index: bool = False, only_plain_is_right: bool = False, **options: Any) -> Kind:  # fmt: skip
    """A kind of ``find``."""
    command = {"find": "", "filter": query or {}, **options}
    return Kind(f"find {name}", command, compares, only_plain_is_right, needs_index)
