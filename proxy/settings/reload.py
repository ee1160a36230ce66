"""What a reload changes: pure functions from the settings in effect, and those that were read, to the next ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from proxy.settings.config import LoadedSettings
from proxy.settings.table import ROWS, Settings

_FILES_OF_TLS = ("tls_certificate_file", "tls_key_file", "tls_ca_file")


@dataclass(frozen=True, slots=True)
class Reload:
    """``loaded`` is in effect afterwards. ``changed`` are the names of settings that are new in it.

    ``left`` are the names of settings that differ from what was read, because they need a restart.
    """

    loaded: LoadedSettings
    changed: tuple[str, ...]
    left: tuple[str, ...]


def reload(current: LoadedSettings, read: LoadedSettings) -> Reload:
    """The next settings: reloadable ones as they were read, all others as they are."""
    fixed = _fixed_files(current.settings, read.settings)
    changed: list[str] = []
    left: list[str] = []
    for name in _differing(current.settings, read.settings):
        (changed if ROWS[name].is_reloadable and name not in fixed else left).append(name)
    settings = replace(current.settings, **{name: getattr(read.settings, name) for name in changed})
    origins = {name: (current if name in left else read).origins[name] for name in ROWS}
    return Reload(LoadedSettings(settings, origins, read.ignored), tuple(changed), tuple(left))


def with_reloadable(settings: Settings, newer: Settings) -> Settings:
    """``settings`` with the reloadable ones of ``newer``."""
    return replace(settings, **{name: getattr(newer, name) for name, row in ROWS.items() if row.is_reloadable})


def _differing(one: Settings, other: Settings) -> Iterator[str]:
    return (field.name for field in fields(Settings) if getattr(one, field.name) != getattr(other, field.name))


def _fixed_files(current: Settings, read: Settings) -> tuple[str, ...]:
    """The files of TLS, if they need a restart: they belong together, and none can be added or removed."""
    for name in _FILES_OF_TLS:
        if (getattr(current, name) is None) is not (getattr(read, name) is None):
            return _FILES_OF_TLS
    return ()
