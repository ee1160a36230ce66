"""The statements of a large write command, decoded one by one when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Final

from catalog.bson.faithful import MAX_BYTES, Opaque, Unfaithful, faithfully_decoded
from catalog.bson.raw import OBJECT, MalformedBSON, document, iter_positions
from rewrite.plan import PAUSE, Pause

MAX_STATEMENTS: Final = 100_000
"""The maximum number of statements that a server accepts (W94)."""

AT_ONCE_BYTES: Final = 32 * 1024
AT_ONCE: Final = 100
"""Bytes and statements that are processed before other clients run."""


class Statements:
    """Raw statements: the documents of a sequence, or an array."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes | Sequence[bytes]) -> None:
        self._raw = raw

    def __iter__(self) -> Iterator[bytes]:
        """Each statement; raises ``MalformedBSON`` where an array holds anything but documents."""
        if not isinstance(self._raw, bytes):
            yield from self._raw
            return
        for kind, _, start, end in iter_positions(self._raw):
            if self._raw[kind] != OBJECT:
                raise MalformedBSON("a statement that is no document")
            yield self._raw[start:end]


def statement_of(raw: bytes) -> dict[str, Any]:
    """One statement; documents that cannot be decoded faithfully are ``Opaque``. Raises ``Unfaithful``."""
    try:
        return faithfully_decoded(raw)
    except Unfaithful:
        return _in_pieces(raw)


def _in_pieces(raw: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    try:
        for kind, name, start, end in iter_positions(raw):
            for field, decoded in piece_of(raw, kind, name, start, end).items():
                if field in fields:
                    raise Unfaithful("a name stands twice in a statement")
                fields[field] = decoded
    except MalformedBSON as error:
        raise Unfaithful(str(error)) from None
    return fields


HANDED_ON: Final = frozenset({b"comment", b"fields", b"let", b"q", b"query", b"sort", b"u"})
"""Fields that no rewriter needs to understand: they may stay ``Opaque``."""


def piece_of(raw: bytes, kind: int, name: bytes, start: int, end: int) -> Mapping[str, Any]:
    """The field at these positions (``iter_positions``), as ``Opaque`` if it must be and may. Raises ``Unfaithful``."""
    may_be_opaque = raw[kind] == OBJECT and name in HANDED_ON
    if not may_be_opaque or end - start <= MAX_BYTES:
        try:
            return faithfully_decoded(document([raw[kind:end]]))
        except Unfaithful:
            if not may_be_opaque:
                raise
    return {name.decode(): Opaque(raw[start:end])}


def need_rewriting(
    statements: Statements, is_well_formed: Callable[[Any], bool], is_native: Callable[[Any], bool]
) -> Generator[Pause, Any, bool]:
    """Whether all statements are well formed and any of them is not native."""
    found = False
    looked_at, looked_at_bytes = 0, 0
    try:
        for raw in statements:
            looked_at, looked_at_bytes = looked_at + 1, looked_at_bytes + len(raw)
            if looked_at % AT_ONCE == 0 or looked_at_bytes >= AT_ONCE_BYTES:
                looked_at_bytes = 0
                yield PAUSE
            statement = statement_of(raw)
            if looked_at > MAX_STATEMENTS or not is_well_formed(statement):
                return False
            found = found or not is_native(statement)
    except (MalformedBSON, Unfaithful):
        return False
    return found
