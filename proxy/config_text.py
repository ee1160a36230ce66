"""Settings as text: ``config.example.toml`` and what ``check-config`` and ``--print-config`` show."""

from __future__ import annotations

import json
from pathlib import Path

from proxy.config import LoadedSettings, describe_expected
from proxy.redaction import redact_uri
from proxy.settings_table import ROWS, Address

_HEAD = """\
# Settings of tsproxy with their defaults. Copy what you change into a file of your own:
#     tsproxy serve --config FILE
# A flag (--max-connections 500) wins over an environment variable (TSPROXY_MAX_CONNECTIONS=500), that over this
# file. An empty text ("") means: not set, or off.
"""


def _toml(value: object) -> str:
    match value:
        case None:
            return '""'
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case tuple():
            return "[" + ", ".join(_toml(item) for item in value) + "]"
        case Path() | Address():
            return _toml(str(value))
        case _:
            return json.dumps(str(value), ensure_ascii=False)


def render_example() -> str:
    """The whole of ``config.example.toml``: every setting, its default, what it does and what it may be."""
    lines = [_HEAD]
    group = ""
    for row in ROWS.values():
        if row.group != group:
            group = row.group
            lines.append(f"\n# ---- {group} ----\n")
        lines.append(f"# {row.text} ({describe_expected(row)})\n{row.name} = {_toml(row.default)}")
    return "\n".join(lines) + "\n"


def render_settings(loaded: LoadedSettings) -> str:
    """The effective settings as TOML, each with where it came from, passwords masked."""
    lines = [f"{name} = {_toml(getattr(loaded.settings, name))}" for name in ROWS]
    width = min(max(map(len, lines)), 70)
    return "".join(
        f"{redact_uri(line):<{width}}  # {loaded.origins[name]}\n" for name, line in zip(ROWS, lines, strict=True)
    )
