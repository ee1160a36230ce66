"""The page of admin commands, from ``proxy/admin/table.py``."""

from __future__ import annotations

from docs.generator.markdown import code, page, table
from proxy.admin.table import COMMANDS, AdminCommand, Field, Kind, Right

_INTRODUCTION = """
Every command is sent to the database `admin`, as `db.adminCommand({tsproxy: NAME, …})`. How to use them:
[Operating](../operating.md#admin-commands); who may use them: [Security](../security.md#admin-commands).
"""
_NUMBERS = (Kind.WHOLE, Kind.NUMBER)


def _privileges(right: Right) -> str:
    if not right.actions:
        return "none: any user that has logged in"
    return " and ".join(code(action) for action in right.actions) + " on the cluster"


def _bounds(field: Field) -> str:
    return f"{field.least:,} to {field.most:,}" if field.kind in _NUMBERS else ""


def _entry(name: str, command: AdminCommand) -> str:
    text = f"## {name}\n\n{command.text}\n\nPrivileges: {_privileges(command.right)}.\n"
    if not command.fields:
        return text + "\nFields: none.\n"
    rows = [
        [code(field_name), field.kind.value, _bounds(field), "yes" if field.is_required else "no", field.text]
        for field_name, field in command.fields.items()
    ]
    return f"{text}\n" + table(["field", "type", "range", "required", "meaning"], rows)


def admin_page() -> str:
    """The whole page."""
    head = page("Admin commands", "proxy/admin/table.py", _INTRODUCTION)
    return "\n".join([head, *(_entry(name, command) for name, command in COMMANDS.items())])
