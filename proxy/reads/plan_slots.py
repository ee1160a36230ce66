"""Finds the values in a read that differ from one read of a dashboard to the next: of the series, and of the time.

Values for which a rewriter may take another way are left out: times near the limits of bucket ids, strings that may be
read as expressions, and two bounds on the same side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from catalog.namespaces import VirtualCollection
from proxy.request.command import Command
from proxy.request.session_fields import SESSION_FIELDS
from proxy.wire.framing import ARRAY, DOCUMENT, STRING

MOST_SLOTS: Final = 8

OBJECT_ID: Final = 0x07
_DATE: Final = 0x09
_INT32: Final = 0x10
_INT64: Final = 0x12
_SIZES: Final = {OBJECT_ID: 12, _DATE: 8, _INT32: 4, _INT64: 8, 0x01: 8, 0x08: 1, 0x0A: 0}
"""Of values with a fixed size; those of other types end the search."""

_FILTERS: Final = {"find": b"filter", "count": b"query", "distinct": b"query", "aggregate": b"pipeline"}
_LOW: Final = frozenset({b"$gte", b"$gt"})
_HIGH: Final = frozenset({b"$lt", b"$lte"})

EARLIEST_MS: Final = 63_072_000_000
LATEST_MS: Final = 4_102_444_800_000
"""1972 and 2100: between them, a time and a bucket's longest span (a year) are within what bucket ids represent."""

META: Final = 0
LOW: Final = 1
HIGH: Final = 2
"""Roles of values: of a series, the lower and the upper bound of the time."""


class Slot:
    """A value in a command: its role and type, where it begins and ends in the body, and its bytes."""

    __slots__ = ("end", "kind", "role", "start", "value")

    def __init__(self, role: int, kind: int, start: int, end: int, value: bytes) -> None:
        self.role = role
        self.kind = kind
        self.start = start
        self.end = end
        self.value = value

    @property
    def blank(self) -> bytes:
        """What stands for the value in the shape of a read; the length of a string is a part of the shape."""
        kept = 4 if self.kind == STRING else 0
        return self.value[:kept] + bytes(len(self.value) - kept)


class _Search:
    """Finds the slots in the filter of a command."""

    def __init__(self, command: Command, target: VirtualCollection) -> None:
        self._body = command.body
        self._time = target.options.time_field.encode()
        meta = target.options.meta_field
        self._meta = b"" if meta is None else meta.encode()
        self.slots: list[Slot] = []
        self._bounds = [0, 0, 0]
        """The number of slots by role."""

    def within(self, start: int, end: int) -> bool:
        """Whether the filter at this position could be searched."""
        elements = elements_of(self._body, start, end)
        if elements is None:
            return False
        for kind, name, value, stop in elements:
            if name == self._time:
                if kind == DOCUMENT and not self._times(value, stop):
                    return False
            elif self._meta and (name == self._meta or name.startswith(self._meta + b".")):
                self._series(kind, value, stop)
        return len(self.slots) <= MOST_SLOTS and self._bounds[LOW] <= 1 and self._bounds[HIGH] <= 1

    def _times(self, start: int, end: int) -> bool:
        elements = elements_of(self._body, start, end)
        if elements is None:
            return False
        for kind, name, value, stop in elements:
            role = LOW if name in _LOW else HIGH if name in _HIGH else META
            if kind != _DATE or role == META:
                return False
            if not EARLIEST_MS <= millis_of(self._body[value:stop]) <= LATEST_MS:
                return False
            self._add(role, kind, value, stop)
        return True

    def _series(self, kind: int, start: int, end: int) -> None:
        if kind == STRING:
            text = self._body[start + 4 : end - 1]
            if text and not text.startswith(b"$") and _is_text(text):
                self._add(META, kind, start, end)
        elif kind in (OBJECT_ID, _INT32, _INT64):
            self._add(META, kind, start, end)

    def _add(self, role: int, kind: int, start: int, end: int) -> None:
        self._bounds[role] += 1
        self.slots.append(Slot(role, kind, start, end, self._body[start:end]))


def _is_text(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def elements_of(body: bytes, start: int, end: int) -> list[tuple[int, bytes, int, int]] | None:
    """Type, name, start and end of the value of each element of the document at ``start``.

    ``None`` if it has other types than usual filters, or is malformed.
    """
    if end - start < 5 or int.from_bytes(body[start : start + 4], "little") != end - start:
        return None
    found: list[tuple[int, bytes, int, int]] = []
    at, last = start + 4, end - 1
    while at < last:
        kind = body[at]
        value = body.find(0, at + 1, last) + 1
        if not value:
            return None
        name = body[at + 1 : value - 1]
        size = _SIZES.get(kind, -1)
        if size < 0:
            if value + 4 > last or kind not in (STRING, DOCUMENT, ARRAY):
                return None
            size = int.from_bytes(body[value : value + 4], "little") + (4 if kind == STRING else 0)
            if size < 5:
                return None
        at = value + size
        if at > last:
            return None
        found.append((kind, name, value, at))
    return found


def slots_of(command: Command, target: VirtualCollection) -> list[Slot] | None:
    """The values of a read that a template may fill in, in their order in the body; ``None`` if there are none."""
    field = _FILTERS.get(command.name, b"")
    kind, start, end = command.fields.get(field, (0, 0, 0))
    if kind == ARRAY:
        stages = elements_of(command.body, start, end)
        if not stages or stages[0][0] != DOCUMENT:
            return None
        parts = elements_of(command.body, stages[0][2], stages[0][3])
        if parts is None or len(parts) != 1 or parts[0][1] != b"$match":
            return None
        kind, _, start, end = parts[0]
    if kind != DOCUMENT:
        return None
    search = _Search(command, target)
    if not search.within(start, end) or not search.slots:
        return None
    low_ms = high_ms = 0
    for slot in search.slots:
        if slot.role == LOW:
            low_ms = millis_of(slot.value)
        elif slot.role == HIGH:
            high_ms = millis_of(slot.value)
    return None if high_ms and low_ms > high_ms else search.slots


def filled(body: bytes, slots: Sequence[Slot], values: Sequence[bytes]) -> bytes:
    """The body with other values of the same lengths."""
    pieces: list[bytes] = []
    at = 0
    for slot, value in zip(slots, values, strict=True):
        pieces.append(body[at : slot.start])
        pieces.append(value)
        at = slot.end
    return b"".join([*pieces, body[at:]])


def shape_of(command: Command, slots: Sequence[Slot]) -> bytes:
    """What reads with the same template have in common: the fields without those of the session, and blank slots."""
    blank = filled(command.body, slots, [slot.blank for slot in slots])
    return b"".join(
        [
            blank[start - len(name) - 2 : end]
            for name, (_, start, end) in command.fields.items()
            if name not in SESSION_FIELDS and name != b"$db"
        ]
    )


def millis_of(value: bytes) -> int:
    """Milliseconds since 1970 of a raw date."""
    return int.from_bytes(value, "little", signed=True)
