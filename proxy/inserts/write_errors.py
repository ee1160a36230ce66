"""The errors of single documents of an insert, which may be 100,000 (W90)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from catalog.bson.codec import encode
from catalog.errors import CommandError

ERRORS_AT_ONCE: Final = 2_000
"""Number of errors that are encoded in one piece."""

_ENTRY = struct.Struct("<i7si")
"""Size of an entry, name and value of its first field."""


class WriteErrors:
    """Collects the errors by the index of the document. Of many, most are equal: then one object is kept."""

    __slots__ = ("_by_index", "_latest")

    def __init__(self) -> None:
        self._by_index: dict[int, CommandError] = {}
        self._latest: CommandError | None = None

    def __len__(self) -> int:
        return len(self._by_index)

    def add(self, index: int, error: CommandError) -> None:
        """The document at this index has this error."""
        # A traceback would keep the document and the reply in memory until the garbage collector runs.
        error.__traceback__ = None
        latest = self._latest
        if latest is None or not _are_equal(latest, error):
            self._latest = latest = error
        self._by_index[index] = latest

    @property
    def failure(self) -> CommandError | None:
        """An error of a whole backend command, which fails this command as a whole, so that drivers retry it."""
        for error in self._distinct():
            if error.fails_command:
                return error
        return None

    def labels(self, *, first_only: bool) -> Sequence[str]:
        """The labels of all errors, or of the first one."""
        reported = (self._by_index[min(self._by_index)],) if first_only and self._by_index else self._distinct()
        return sorted({label for error in reported for label in error.labels})

    def _distinct(self) -> dict[CommandError, None]:
        return dict.fromkeys(self._by_index.values())

    def entries(self, *, first_only: bool) -> Iterator[bytes]:
        """The elements of ``writeErrors`` in pieces of ``ERRORS_AT_ONCE``, by index, perhaps only the first one."""
        indexes = sorted(self._by_index)
        if first_only:
            indexes = indexes[:1]
        for start in range(0, len(indexes), ERRORS_AT_ONCE):
            known: dict[CommandError, bytes] = {}
            entries: list[bytes] = []
            for position, index in enumerate(indexes[start : start + ERRORS_AT_ONCE], start):
                error = self._by_index[index]
                rest = known.get(error)
                if rest is None:
                    rest = known[error] = encode(error.write_error(0))[_ENTRY.size :]
                entries.append(b"\x03%d\0" % position)
                entries.append(_ENTRY.pack(_ENTRY.size + len(rest), b"\x10index\0", index) + rest)
            yield b"".join(entries)


def _are_equal(one: CommandError, other: CommandError) -> bool:
    return (
        one.message == other.message
        and one.code == other.code
        and one.labels == other.labels
        and one.fails_command is other.fails_command
        and not one.details
        and not other.details
    )
