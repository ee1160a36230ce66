"""The control summaries: the least and the greatest value at every path of a bucket (W20-W28).

A summary is a tree: scalars at the leaves, objects by field name, arrays by index. One tree holds both ends,
because values that share a bucket have the same kind at every path (W47).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from catalog.bson import raw
from catalog.bson.order import CANONICAL, SORT_KEYS

MIN_CHANGED = 1
MAX_CHANGED = 2
BOTH_CHANGED = 3


class ScalarSummary:
    """The least and the greatest scalar; of equal values the first seen stays, with its type (W21)."""

    __slots__ = ("greatest", "greatest_key", "least", "least_key")

    def __init__(self, least: bytes, greatest: bytes) -> None:
        self.least = least
        self.greatest = greatest
        self.least_key: Any = SORT_KEYS[least[0]](least)
        self.greatest_key: Any = SORT_KEYS[greatest[0]](greatest)

    def fold(self, value: bytes) -> int:
        """Add a value; returns which ends changed."""
        kind = value[0]
        key = SORT_KEYS[kind](value)
        if CANONICAL[kind] != CANONICAL[self.least[0]]:
            return self._fold_other_class(value, key)
        if key < self.least_key:
            self.least, self.least_key = value, key
            return MIN_CHANGED
        if key > self.greatest_key:
            self.greatest, self.greatest_key = value, key
            return MAX_CHANGED
        return 0

    def _fold_other_class(self, value: bytes, key: Any) -> int:
        """W28: the lower and the higher canonical class win."""
        changed = 0
        if CANONICAL[value[0]] < CANONICAL[self.least[0]]:
            self.least, self.least_key = value, key
            changed |= MIN_CHANGED
        if CANONICAL[value[0]] > CANONICAL[self.greatest[0]]:
            self.greatest, self.greatest_key = value, key
            changed |= MAX_CHANGED
        return changed

    def ends(self) -> tuple[bytes, bytes]:
        """The element values for ``control.min`` and ``control.max``."""
        return self.least, self.greatest


class ObjectSummary:
    """Objects merge field by field, by name (W24)."""

    __slots__ = ("fields",)

    def __init__(self) -> None:
        self.fields: dict[bytes, Summary] = {}

    def fold(self, value: bytes) -> int:
        """Add an object; returns which ends changed."""
        changed = 0
        fields = self.fields
        for name, inner in raw.fields_of(value, 1).items():
            known = fields.get(name)
            if known is None:
                fields[name] = summary_of(inner)
                changed = BOTH_CHANGED
            else:
                changed |= known.fold(inner)
        return changed

    def ends(self) -> tuple[bytes, bytes]:
        """The element values for ``control.min`` and ``control.max``."""
        ends = [(name, *summary.ends()) for name, summary in self.fields.items()]
        return (
            b"\x03" + raw.document(raw.element(name, least) for name, least, _ in ends),
            b"\x03" + raw.document(raw.element(name, greatest) for name, _, greatest in ends),
        )


class ArraySummary:
    """Arrays merge index by index, up to the longest (W25)."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[Summary] = []

    def fold(self, value: bytes) -> int:
        """Add an array; returns which ends changed."""
        changed = 0
        items = self.items
        for index, (_, inner) in enumerate(raw.iter_elements(value, 1)):
            if index < len(items):
                changed |= items[index].fold(inner)
            else:
                items.append(summary_of(inner))
                changed = BOTH_CHANGED
        return changed

    def ends(self) -> tuple[bytes, bytes]:
        """The element values for ``control.min`` and ``control.max``."""
        ends = [(b"%d" % index, *summary.ends()) for index, summary in enumerate(self.items)]
        return (
            b"\x04" + raw.document(raw.element(name, least) for name, least, _ in ends),
            b"\x04" + raw.document(raw.element(name, greatest) for name, _, greatest in ends),
        )


Summary: TypeAlias = ScalarSummary | ObjectSummary | ArraySummary


def summary_of(value: bytes) -> Summary:
    """The summary of one element value."""
    if value[0] not in raw.NESTED_TYPES:
        return ScalarSummary(value, value)
    summary: Summary = ObjectSummary() if value[0] == raw.OBJECT else ArraySummary()
    summary.fold(value)
    return summary


def summary_between(least: bytes, greatest: bytes) -> Summary:
    """The summary whose ends were stored as ``least`` and ``greatest``.

    :raises ValueError: the two ends do not have the same paths with the same kinds
    """
    if CANONICAL[least[0]] != CANONICAL[greatest[0]]:
        raise ValueError("control.min and control.max differ in type")
    if least[0] not in raw.NESTED_TYPES:
        scalar = ScalarSummary(least, greatest)
        if scalar.greatest_key < scalar.least_key:
            raise ValueError("control.min is greater than control.max")
        return scalar
    lower, upper = raw.fields_of(least, 1), raw.fields_of(greatest, 1)
    if lower.keys() != upper.keys():
        raise ValueError("control.min and control.max differ in fields")
    if least[0] == raw.OBJECT:
        summary = ObjectSummary()
        summary.fields = {name: summary_between(value, upper[name]) for name, value in lower.items()}
        return summary
    array = ArraySummary()
    array.items = [summary_between(value, upper[name]) for name, value in lower.items()]
    return array


def least_of(values: Sequence[bytes]) -> bytes:
    """``control.min`` of values that need not be of one kind: the lowest class wins as a whole (W28)."""
    return _end_of(values, min)


def greatest_of(values: Sequence[bytes]) -> bytes:
    """``control.max`` of values that need not be of one kind: the highest class wins as a whole (W28)."""
    return _end_of(values, max)


def _end_of(values: Sequence[bytes], choose: Callable[..., Any]) -> bytes:
    winner = choose(CANONICAL[value[0]] for value in values)
    ranked = [value for value in values if CANONICAL[value[0]] == winner]
    kind = ranked[0][0]
    if kind not in raw.NESTED_TYPES:
        end: bytes = choose(ranked, key=lambda value: SORT_KEYS[value[0]](value))
        return end
    columns: dict[bytes, list[bytes]] = {}
    for value in ranked:
        for name, inner in raw.fields_of(value, 1).items():
            columns.setdefault(name, []).append(inner)
    ends = (raw.element(name, _end_of(inner, choose)) for name, inner in columns.items())
    return bytes([kind]) + raw.document(ends)
