"""The page of settings, from ``proxy/settings/table.py``."""

from __future__ import annotations

import msgspec

from docs.generator.markdown import code, page, table
from proxy.settings.config import describe_expected
from proxy.settings.limits import LONGEST_WAIT_MS, MOST_WAITING, DatabaseLimits, UserLimits
from proxy.settings.table import ROWS, SettingRow
from proxy.settings.text import toml

_INTRODUCTION = """
Every setting has one name in three forms: in the TOML file, as an environment variable, and as a flag. Flags override
variables, variables override the file. How to give them, and what the groups are for:
[Configuration](../configuration.md). A *reloadable* setting takes effect on SIGHUP and with the admin command `reload`;
all others need a restart.
"""


def _unit(row: SettingRow) -> list[tuple[str, str]]:
    return [("unit", row.unit)] if row.unit else []


def _entry(row: SettingRow) -> str:
    facts = [
        ("allowed", describe_expected(row)),
        *_unit(row),
        ("default", code(toml(row.default))),
        ("reloadable", "yes" if row.is_reloadable else "no"),
        ("variable", code(row.variable)),
        ("flag", code(row.flag)),
    ]
    return f"### {row.name}\n\n{row.text}\n\n" + "\n".join(f"- {name}: {value}" for name, value in facts) + "\n"


def _limits() -> str:
    defaults = {"max_waiting": f"{MOST_WAITING:,}", "max_wait_ms": f"{LONGEST_WAIT_MS:,}"}
    databases = set(DatabaseLimits.__struct_fields__)
    rows = [
        [code(field.name), "yes", "yes" if field.name in databases else "no", defaults.get(field.name, "0")]
        for field in msgspec.structs.fields(UserLimits)
    ]
    return "\nNames in an entry of these tables:\n\n" + table(["name", "for a user", "for a database", "default"], rows)


def setting_page() -> str:
    """The whole page."""
    overview = [
        [f"[{row.name}](#{row.name})", row.unit, code(toml(row.default)), "yes" if row.is_reloadable else "no"]
        for row in ROWS.values()
    ]
    parts = [
        page("Settings", "proxy/settings/table.py", _INTRODUCTION),
        table(["setting", "unit", "default", "reloadable"], overview),
    ]
    group = ""
    for row in ROWS.values():
        if row.group != group:
            group = row.group
            # With "Group", no heading is that of a setting, too.
            parts.append(f"## Group: {group}\n")
        parts.append(_entry(row))
        if row.name == "database_limits":
            parts.append(_limits().lstrip())
    return "\n".join(parts)
