"""The shape of a command: its fields and operators, with the type of each value in place of the value.

The shape tells what kind of command it was without revealing what is stored or searched for. It is bounded in depth, in
the number of fields and in length, whatever a client sends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from catalog.bson.raw import ARRAY, OBJECT, MalformedBSON, iter_positions
from proxy.request.command import Command
from proxy.request.session_fields import SESSION_FIELDS
from proxy.wire.framing import TYPE_NAMES

DEEPEST: Final = 12
"""Levels of documents and arrays that are shown."""
MOST_FIELDS: Final = 200
"""Fields and elements of one shape, in all levels."""
LONGEST_NAME: Final = 64
LONGEST_SHAPE: Final = 2_000
"""Characters."""

LEFT_OUT: Final = SESSION_FIELDS | {b"$db", b"comment"}
"""Fields that belong to the session, or are shown beside the shape."""

_MORE: Final = "…"
_PLAIN_NAME: Final = re.compile(r"[\w$.]+", re.ASCII)


class _Walk:
    """The fields that may still be shown."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST_FIELDS

    def value(self, raw: bytes, kind: int, start: int, end: int, levels: int) -> str:
        if kind == OBJECT:
            return "{" + ", ".join(self._fields(raw, start, end, levels)) + "}"
        if kind == ARRAY:
            return "[" + ", ".join(self._elements(raw, start, end, levels)) + "]"
        return TYPE_NAMES.get(kind, "unknown")

    def _fields(
        self, raw: bytes, start: int, end: int, levels: int, left_out: frozenset[bytes] = frozenset()
    ) -> Iterator[str]:
        if not levels:
            yield _MORE
            return
        for kind_at, name, value, stop in iter_positions(raw, start, end):
            if name in left_out:
                continue
            if not self.left:
                yield _MORE
                return
            self.left -= 1
            yield f"{_name(name)}: {self.value(raw, raw[kind_at], value, stop, levels - 1)}"

    def _elements(self, raw: bytes, start: int, end: int, levels: int) -> Iterator[str]:
        """The elements of an array; equal neighbours are counted."""
        if not levels:
            yield _MORE
            return
        last, count = "", 0
        for kind_at, _, value, stop in iter_positions(raw, start, end):
            if not self.left:
                break
            self.left -= 1
            shape = self.value(raw, raw[kind_at], value, stop, levels - 1)
            if count and shape != last:
                yield _counted(last, count)
                count = 0
            last = shape
            count += 1
        if count:
            yield _counted(last, count)
        if not self.left:
            yield _MORE

    def document(self, raw: bytes, left_out: frozenset[bytes]) -> str:
        return "{" + ", ".join(self._fields(raw, 0, len(raw), DEEPEST, left_out)) + "}"


def _name(name: bytes) -> str:
    text = name[: LONGEST_NAME * 4].decode(errors="replace")
    text = text if len(text) <= LONGEST_NAME else text[:LONGEST_NAME] + _MORE
    return text if _PLAIN_NAME.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _counted(shape: str, count: int) -> str:
    return shape if count == 1 else f"{shape} × {count}"


def _bounded(shape: str) -> str:
    return shape if len(shape) <= LONGEST_SHAPE else shape[:LONGEST_SHAPE] + _MORE


def shape_of(document: bytes, left_out: frozenset[bytes] = frozenset()) -> str:
    """The shape of a raw document without the top-level fields ``left_out``; ``"?"`` if it is not BSON."""
    try:
        return _bounded(_Walk().document(document, left_out))
    except MalformedBSON:
        return "?"


def shape_of_command(command: Command) -> str:
    """The shape of a command; of a document sequence, the shape of the first document and the number of all."""
    shape = shape_of(command.body, LEFT_OUT)
    for identifier, documents in command.sequences:
        first = shape_of(documents[0]) if documents else ""
        more = f", {_MORE} {len(documents) - 1} more" if len(documents) > 1 else ""
        shape = f"{shape[:-1]}, {_name(identifier.encode())}: [{first}{more}]}}"
    return _bounded(shape)
