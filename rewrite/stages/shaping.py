"""Follows which fields of a measurement are as they were stored, through stages that only shape documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rewrite.stages.dependencies import is_inclusion
from rewrite.stages.draft import Stage, only


class Shape(NamedTuple):
    """``changed``: top-level fields that were set, computed or removed; ``kept``: the only others, ``None`` for all."""

    changed: frozenset[str] = frozenset()
    kept: frozenset[str] | None = None

    def has(self, fields: Iterable[str | None]) -> bool:
        """Whether these fields are as they were stored; ``None`` is a field that a collection does not have."""
        return all(
            name is None or (name not in self.changed and (self.kept is None or name in self.kept)) for name in fields
        )


def shapes(stages: Sequence[Stage]) -> list[Shape]:
    """The input of each leading stage; the list ends where documents are no longer single measurements."""
    found: list[Shape] = []
    shape: Shape | None = Shape()
    for stage in stages:
        if shape is None:
            break
        found.append(shape)
        shape = _after(shape, stage)
    return found


def _after(shape: Shape, stage: Stage) -> Shape | None:
    name, argument = only(stage)
    if name in ("$match", "$sort"):
        return shape
    if name in ("$addFields", "$set", "$project") and not isinstance(argument, dict):
        return None
    match name:
        case "$project" if is_inclusion(argument):
            plain = frozenset(path for path, value in argument.items() if _is_plain(value) and value)
            plain |= frozenset() if "_id" in argument else {"_id"}
            return shape._replace(kept=plain if shape.kept is None else shape.kept & plain)
        case "$addFields" | "$set" | "$project":
            return shape._replace(changed=shape.changed | {top_field(path) for path in argument})
        case "$unset":
            paths = argument if isinstance(argument, list) else [argument]
            return shape._replace(changed=shape.changed | {top_field(path) for path in paths})
        case _:
            return None


def _is_plain(value: Any) -> bool:
    """Whether a projection only keeps or removes such a field."""
    return isinstance(value, bool | int | float)


def top_field(path: Any) -> str:
    """The field of a row that a path is in."""
    return str(path).split(".", maxsplit=1)[0]
