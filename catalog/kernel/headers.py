"""Checks that ``control.min`` and ``control.max`` of a bucket are those of its rows (W20-W28).

Readers find a bucket by its summaries, so wrong ones hide rows. This is the Python form of this function of
``catalog.kernel``. Unlike the code that makes summaries, it folds nothing: it compares every value with both ends, and
each end must be equal to some value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from catalog.bson import raw
from catalog.bson.order import CANONICAL, SORT_KEYS
from catalog.kernel.comparing import cells_of, fields_once

_VERSION_ONE = b"\x10\x01\0\0\0"


class _End:
    """One end at one path; ``sign``: 1 for the least value, -1 for the greatest."""

    __slots__ = ("_inner", "_key", "_sign", "kind", "met")

    def __init__(self, value: bytes, sign: int) -> None:
        self.met = False
        self.kind = value[0]
        self._sign = sign
        self._inner: dict[bytes | int, _End] = {}
        if value[0] in raw.NESTED_TYPES:
            children = list(raw.iter_elements(value, 1))
            names = _keys(value[0], [name for name, _ in children])
            self._inner = {name: _End(inner, sign) for name, (_, inner) in zip(names, children, strict=True)}
            if len(self._inner) != len(children):
                raise ValueError("a name that is there twice")
        else:
            self._key = SORT_KEYS[value[0]](value)

    def meet(self, value: bytes) -> bool:
        """Compare a value with this end; whether it is within the end at every path."""
        difference = CANONICAL[value[0]] - CANONICAL[self.kind]
        if difference:
            # W28: of several classes the lowest and the highest one.
            return difference * self._sign > 0
        if value[0] in raw.NESTED_TYPES:
            self.met = True
            return all(
                name in self._inner and self._inner[name].meet(inner) for name, inner in _children(value).items()
            )
        key = SORT_KEYS[value[0]](value)
        is_less, is_greater = key < self._key, key > self._key
        self.met = self.met or not (is_less or is_greater)
        return not (is_less if self._sign > 0 else is_greater)

    def is_met(self) -> bool:
        """Whether the end is equal to some value at every path."""
        return self.met and all(inner.is_met() for inner in self._inner.values())


def _keys(kind: int, names: list[bytes]) -> list[bytes | int]:
    """The keys by which values are merged: names in objects, indexes in arrays (W24, W25)."""
    return list(names) if kind == raw.OBJECT else list(range(len(names)))


def _children(value: bytes) -> Mapping[Any, bytes]:
    """The values inside an object or array; of a repeated name, the first counts (W36)."""
    if value[0] == raw.OBJECT:
        return raw.fields_of(value, 1)
    return {place: inner for place, (_, inner) in enumerate(raw.iter_elements(value, 1))}


def has_true_header(bucket: bytes, time_field: bytes) -> bool:
    """Whether the summaries of a version 1 bucket are those of its rows; any of several equal values is correct.

    The least time is the start of the bucket, so no time may be before it (W20). Without a meta value, a field with an
    empty name may have no summaries (W27).
    """
    try:
        fields = raw.fields_of(bucket)
        control = _object(fields[b"control"])
        if control[b"version"] != _VERSION_ONE:
            return False
        if fields[b"data"][0] != raw.OBJECT:
            return False
        columns = list(raw.iter_elements(fields[b"data"], 1))
        return all(
            _is_end(control[name], sign, columns, time_field, may_be_without=b"meta" not in fields)
            for name, sign in ((b"min", 1), (b"max", -1))
        )
    except (ValueError, KeyError):
        return False


def _object(value: bytes) -> dict[bytes, bytes]:
    if value[0] != raw.OBJECT:
        raise ValueError("no object")
    return raw.fields_of(value, 1)


def _is_end(
    summaries: bytes, sign: int, columns: Iterable[tuple[bytes, bytes]], time_field: bytes, *, may_be_without: bool
) -> bool:
    ends = {name: _End(value, sign) for name, value in fields_once(summaries).items()}
    for name, column in columns:
        cells = cells_of(column).values()
        end = ends.get(name)
        if end is None:
            if name or not may_be_without:
                return False
            continue
        is_time = name == time_field
        if not all((value[0] == raw.DATE or not is_time) and end.meet(value) for value in cells):
            return False
        # The start is rounded down, so it need not be equal to a time (W20).
        end.met = end.met or (is_time and sign > 0 and end.kind == raw.DATE)
    return all(end.is_met() for end in ends.values())
