"""Settings as text: ``config.example.toml`` and what ``check-config`` and ``--print-config`` show."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path

import msgspec

from proxy.settings.config import LoadedSettings, describe_expected
from proxy.settings.redaction import redact_uri
from proxy.settings.table import ROWS, Address

_HEAD = """\
# All settings of tsproxy with their default values. Copy the ones that you change into a file of your own:
#     tsproxy serve --config FILE
# A flag (--max-connections 500) overrides an environment variable (TSPROXY_MAX_CONNECTIONS=500), which overrides
# the file. An empty string ("") means: not set, or disabled. Reloadable settings take effect on SIGHUP; all others need
# a restart.
"""


def toml(value: object) -> str:
    """A value as the settings file has it, passwords masked."""
    match value:
        case None:
            return '""'
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case msgspec.Struct():
            said = {name: number for name, number in msgspec.structs.asdict(value).items() if number is not None}
            return toml(said)
        case Mapping():
            inside = ", ".join(f"{toml(name)} = {toml(item)}" for name, item in value.items())
            return "{ " + inside + " }" if inside else "{}"
        case tuple():
            return "[" + ", ".join(toml(item) for item in value) + "]"
        case Path() | Address():
            return toml(str(value))
        case _:
            return json.dumps(redact_uri(str(value)), ensure_ascii=False)


def render_example() -> str:
    """The contents of ``config.example.toml``: every setting with its default, description and allowed values."""
    lines = [_HEAD]
    group = ""
    for row in ROWS.values():
        if row.group != group:
            group = row.group
            lines.append(f"\n# ---- {group} ----\n")
        expected = describe_expected(row) + ("; reloadable" if row.is_reloadable else "")
        text = textwrap.wrap(f"{row.text} ({expected})", 116, break_on_hyphens=False)
        lines.append("\n".join([*(f"# {line}" for line in text), f"{row.name} = {toml(row.default)}"]))
    return "\n".join(lines) + "\n"


def render_settings(loaded: LoadedSettings) -> str:
    """The effective settings as TOML, each with its source and whether it is reloadable, passwords masked."""
    lines = [f"{name} = {toml(getattr(loaded.settings, name))}" for name in ROWS]
    width = min(max(map(len, lines)), 70)
    return "".join(
        f"{line:<{width}}  # {loaded.origins[name]}{'; reloadable' if row.is_reloadable else ''}\n"
        for (name, row), line in zip(ROWS.items(), lines, strict=True)
    )
