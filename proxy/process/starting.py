"""What the log says first: which program runs, with which settings, for which backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import msgspec

from proxy.settings.config import FROM_DEFAULT, LoadedSettings
from proxy.settings.redaction import redact_uri
from proxy.settings.table import Settings


def shown(settings: Settings) -> dict[str, Any]:
    """All settings as plain values, passwords masked."""
    return {field.name: _plain(getattr(settings, field.name)) for field in fields(settings)}


def changed(loaded: LoadedSettings) -> dict[str, Any]:
    """Those of ``shown`` that were given and differ from the defaults, without what this process does not use."""
    settings, defaults = loaded.settings, shown(Settings())
    unused = () if settings.backend is None else ("embedded_",)
    return {
        name: value
        for name, value in shown(settings).items()
        # The path and the number of bytes that stand for some defaults are not those of the table.
        if loaded.origins[name] != FROM_DEFAULT and value != defaults[name] and not name.startswith(unused)
    }


def _plain(value: object) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case msgspec.Struct():
            return {name: number for name, number in msgspec.structs.asdict(value).items() if number is not None}
        case Mapping():
            return {name: _plain(item) for name, item in value.items()}
        case tuple():
            return [_plain(item) for item in value]
        case _:
            return redact_uri(str(value))
