"""The state file of an import: how far it is, and which rows are on their way.

It is written before rows are sent and after all of them are stored, so that an import that was killed knows which rows
may be stored already, and looks for these alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

VERSION: Final = 1


class WrongState(Exception):
    """The state file cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ImportState:
    """``mark``: the position up to which all rows are stored or rejected; ``entries``: how many there were.

    ``under_way``: how many entries after it were being sent. ``rejects_bytes``: size of the file of rejects for the
    entries up to the mark. ``series_id``: 14 hexadecimal digits that the made ``_id`` values of this import begin with.
    """

    source: Mapping[str, Any]
    target: str
    series_id: str
    mark: Mapping[str, Any] = field(default_factory=dict)
    entries: int = 0
    under_way: int = 0
    stored: int = 0
    duplicates: int = 0
    rejected: int = 0
    rejects_bytes: int = 0
    is_finished: bool = False

    @classmethod
    def new(cls, source: Mapping[str, Any], target: str) -> ImportState:
        """The state of an import that begins."""
        return cls(source=dict(source), target=target, series_id=os.urandom(7).hex())

    def made_id(self, entry: int) -> bytes:
        """The ``_id`` (ObjectId) of a row that has none: the same in each attempt to import this entry."""
        return bytes.fromhex(self.series_id) + entry.to_bytes(5, "big")


def load(path: Path, source: Mapping[str, Any], target: str) -> ImportState | None:
    """The state of this import; ``None`` if there is none. Raises ``WrongState``."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise WrongState(f"{path}: cannot read the state file: {error}") from None
    try:
        fields = json.loads(text)
        if fields.pop("version") != VERSION:
            raise ValueError("it is of another version of tsproxy")
        state = ImportState(**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise WrongState(f"{path} is not the state file of an import ({error}): choose another with --state") from None
    if dict(state.source) != dict(source) or state.target != target:
        raise WrongState(
            f"{path} belongs to the import of {_named(state.source)} into {state.target}, or the source has changed: "
            "choose another with --state, or delete it to start over"
        )
    return state


def save(path: Path, state: ImportState) -> None:
    """Write the state so that either the old or the new one is found after a crash; raises ``OSError``."""
    beside = path.with_name(path.name + ".new")
    with beside.open("w") as file:
        json.dump({"version": VERSION, **asdict(state)}, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    directory = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _named(source: Mapping[str, Any]) -> str:
    return str(source.get("file") or source.get("collection") or "another source")


__all__ = ["ImportState", "WrongState", "load", "replace", "save"]
