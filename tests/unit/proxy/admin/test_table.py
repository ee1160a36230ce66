"""The table of admin commands is what docs/operating.md says."""

from __future__ import annotations

import re
from pathlib import Path

from proxy.admin.table import COMMANDS, Right

OPERATING = Path(__file__).parents[4] / "docs" / "operating.md"


def test_every_command_has_its_row_with_fields_and_privileges() -> None:
    section = OPERATING.read_text().partition("\n## Admin commands\n")[2].partition("\n## ")[0]
    shown = {}
    for row in (line for line in section.splitlines() if line.startswith("| `")):
        name, fields, right = (cell.strip() for cell in row.strip("|").split(" | ")[:3])
        shown[name.strip("`")] = (set(re.findall(r"`(\w+)`", fields)), right)
    words = {Right.ANYONE: "any user", Right.READ: "read", Right.CHANGE: "change"}
    assert shown == {name: (set(row.fields), words[row.right]) for name, row in COMMANDS.items()}
    assert list(shown) == list(COMMANDS)


def test_privileges_are_named_in_the_security_document() -> None:
    text = (OPERATING.parent / "security.md").read_text().partition("\n## Admin commands\n")[2].partition("\n## ")[0]
    for right in (Right.READ, Right.CHANGE):
        assert all(f"`{action}`" in text for action in right.actions)
