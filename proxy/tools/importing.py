"""``tsproxy import``: rows from a source into a time-series collection, window by window.

The rows of a window are stored before the state file says so, and the state file names a window before its rows are
sent. An import that was killed looks for the rows of that one window, and sends those that are missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from proxy.tools import state as states
from proxy.tools.grouping import Sendable, sendable
from proxy.tools.loading import Loader, Sent
from proxy.tools.rows import AnyRow, BadRow, Row, Source
from proxy.tools.state import ImportState
from proxy.tools.targets import Fields

WINDOW_ROWS: Final = 50_000
WINDOW_BYTES: Final = 64 << 20


class BadRowFound(Exception):
    """A row cannot be imported, and rows may not be rejected; the message says where and why."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """``rejects``: where bad rows are written; ``None``: the import stops at the first.

    ``looks_for_duplicates``: look for all rows before they are sent, not only for those that may have been sent.
    """

    state_file: Path
    rejects: Path | None = None
    window_rows: int = WINDOW_ROWS
    looks_for_duplicates: bool = False


@dataclass(frozen=True, slots=True)
class _Window:
    entries: Sequence[AnyRow]
    rows: list[Sendable]
    bad: list[BadRow]


def check_first(source: Source, rejects: Path | None) -> None:
    """Read the first row, before anything is created for a source that is something else altogether.

    Raises ``Broken`` and ``BadRowFound`` as ``run`` does.
    """
    first = next(source.rows({}), None)
    if isinstance(first, BadRow) and rejects is None:
        raise BadRowFound(_told(source, first))


def run(
    source: Source,
    loader: Loader,
    fields: Fields,
    state: ImportState,
    options: ImportOptions,
    progress: Callable[[int], None] = lambda position: None,
) -> ImportState:
    """Import all rows that are left; returns the last state. ``progress`` gets positions in the source.

    Raises ``BadRowFound``, ``Broken`` if the source cannot be read on, ``PyMongoError`` if the server cannot be used,
    and ``OSError`` if the state or the rejects cannot be written.
    """
    rejects = _Rejects(options.rejects, state.rejects_bytes)
    entries = source.rows(state.mark)
    repeated = state.under_way
    window = _next_window(entries, state, fields, repeated or options.window_rows, is_repeated=bool(repeated))
    while window.entries:
        if window.bad and options.rejects is None:
            # What comes before it in this window is not sent either: the next attempt begins with the window.
            raise BadRowFound(_told(source, window.bad[0]))
        state = replace(state, under_way=len(window.entries))
        states.save(options.state_file, state)
        rows, duplicates = window.rows, 0
        if repeated or options.looks_for_duplicates:
            rows, duplicates = loader.missing(window.rows)
        sending = loader.send(rows)
        behind = replace(state, entries=state.entries + len(window.entries))
        # The next window is read while this one is sent.
        following = _next_window(entries, behind, fields, options.window_rows)
        sent = sending()
        if sent.refused and options.rejects is None:
            raise BadRowFound(_told(source, sent.refused[0]))
        bad = [*window.bad, *sent.refused]
        rejects.write(source, bad)
        state = _settled(state, source, window, sent, duplicates, len(bad), rejects.size_bytes)
        states.save(options.state_file, state)
        progress(window.entries[-1].end)
        window, repeated = following, 0
    state = replace(state, is_finished=True)
    states.save(options.state_file, state)
    return state


def _settled(
    state: ImportState, source: Source, window: _Window, sent: Sent, duplicates: int, bad: int, rejects_bytes: int
) -> ImportState:
    return replace(
        state,
        mark=source.mark_after(window.entries[-1]),
        entries=state.entries + len(window.entries),
        under_way=0,
        stored=state.stored + sent.stored,
        duplicates=state.duplicates + duplicates,
        rejected=state.rejected + bad,
        rejects_bytes=rejects_bytes,
    )


def _next_window(
    entries: Iterator[AnyRow], state: ImportState, fields: Fields, most: int, *, is_repeated: bool = False
) -> _Window:
    """The next rows: as many as were on their way, if the window is repeated."""
    taken: list[AnyRow] = []
    rows: list[Sendable] = []
    bad: list[BadRow] = []
    size_bytes = 0
    for entry in islice(entries, most):
        taken.append(entry)
        made = entry
        if isinstance(entry, Row):
            ready = sendable(entry, state.made_id, state.entries + len(taken) - 1, fields.time, fields.meta)
            if isinstance(ready, Sendable):
                rows.append(ready)
                size_bytes += len(ready.document)
                if size_bytes >= WINDOW_BYTES and not is_repeated:
                    break
                continue
            made = ready
        assert isinstance(made, BadRow)
        bad.append(made)
    return _Window(taken, rows, bad)


class _Rejects:
    """The file of bad rows: in each line a JSON object with the place, the reason and the text."""

    def __init__(self, path: Path | None, size_bytes: int) -> None:
        """What was written after ``size_bytes`` belongs to a window that is repeated."""
        self._path = path
        self.size_bytes = size_bytes
        if path is not None:
            with path.open("ab") as file:
                file.truncate(size_bytes)

    def write(self, source: Source, bad: Sequence[BadRow]) -> None:
        """Add bad rows, in the order of the source."""
        if self._path is None or not bad:
            return
        with self._path.open("ab") as file:
            for each in sorted(bad, key=lambda row: (row.where, row.skip)):
                said: dict[str, Any] = {source.unit: each.where, "reason": each.reason, "row": each.text}
                file.write(json.dumps(said, ensure_ascii=False).encode() + b"\n")
            file.flush()
            self.size_bytes = file.tell()


def _told(source: Source, bad: BadRow) -> str:
    return f"{source.unit} {bad.where}: {bad.reason}"
