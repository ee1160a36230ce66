"""Settings as a document of plain values, to hand them to another process of the same program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from proxy.settings.config import LoadedSettings, converted
from proxy.settings.table import ROWS, Address, Settings


def document_of(loaded: LoadedSettings) -> dict[str, Any]:
    """The settings with their sources, passwords included."""
    settings = loaded.settings
    return {
        "settings": {field.name: _plain(getattr(settings, field.name)) for field in fields(Settings)},
        "origins": dict(loaded.origins),
        "ignored": list(loaded.ignored),
    }


def loaded_from(document: Mapping[str, Any]) -> LoadedSettings:
    """What ``document_of`` was given; raises ``ValueError`` for settings that this version does not know."""
    given: Mapping[str, Any] = document["settings"]
    unknown = sorted(given.keys() - ROWS.keys())
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: not a known setting")
    values: dict[str, Any] = {
        name: None if value is None else converted(ROWS[name], value) for name, value in given.items()
    }
    return LoadedSettings(Settings(**values), dict(document["origins"]), tuple(document["ignored"]))


def _plain(value: object) -> Any:
    match value:
        case msgspec.Struct():
            return {name: number for name, number in msgspec.structs.asdict(value).items() if number is not None}
        case Mapping():
            return {name: _plain(item) for name, item in value.items()}
        case tuple():
            return list(value)
        case Path() | Address():
            return str(value)
        case _:
            return value
