"""One native insert with the documents of many writers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from catalog.buckets.write_batch import DoubtfulWriter, Writer
from catalog.commit.reclaiming import Contested
from catalog.errors import CommandError
from catalog.namespaces import VirtualCollection
from catalog.ports import WriteConcern


class Entry:
    """A document that came at ``since_seconds``, and the writer that gets its result under ``number``."""

    __slots__ = ("document", "number", "since_seconds", "writer")

    def __init__(self, writer: Writer, number: int, document: bytes, since_seconds: float) -> None:
        self.writer = writer
        self.number = number
        self.document = document
        self.since_seconds = since_seconds


class CoalescedCommand:
    """One insert with the documents of many writers."""

    __slots__ = (
        "collection",
        "entries",
        "is_barred",
        "is_doubtful",
        "is_last_try",
        "is_ordered",
        "number",
        "write_concern",
    )

    def __init__(
        self,
        collection: VirtualCollection,
        write_concern: WriteConcern,
        entries: Sequence[Entry],
        *,
        is_ordered: bool = True,
        is_last_try: bool = False,
    ) -> None:
        """``is_last_try``: its documents were refused in an unordered command, maybe because of others."""
        self.collection = collection
        self.write_concern = write_concern
        self.entries = entries
        """Those whose writers wait."""
        self.number: Any = None
        """What makes it repeatable, from when it is sent; see ``NativeStore``."""
        self.is_last_try = is_last_try
        self.is_ordered = is_ordered
        self.is_doubtful = False
        self.is_barred = False
        """Whether it must not be sent any more, because of statements that were executed elsewhere."""

    def fail(self, error: CommandError) -> None:
        """The writers get this error, once."""
        entries, self.entries = self.entries, ()
        for entry in entries:
            entry.writer.settle((entry.number,), error, None)

    def leave(self, contested: Contested) -> bool:
        """Statements that must not be sent leave it, with their errors; returns whether others are left."""
        settled = contested.settle()
        self.entries = [entry for entry in self.entries if entry.writer not in settled]
        return bool(self.entries)

    def doubt(self, error: CommandError, now_seconds: float) -> dict[int, DoubtfulWriter]:
        """The writers get this error; those that still need the outcome, by the position of their document."""
        found = (
            (position, entry.writer.doubt((entry.number,), error, now_seconds))
            for position, entry in enumerate(self.entries)
        )
        return {position: writer for position, writer in found if writer is not None}
