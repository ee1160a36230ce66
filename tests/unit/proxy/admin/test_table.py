"""The table of admin commands agrees with docs/operating.md and docs/security.md."""

from __future__ import annotations

import re
from pathlib import Path

from proxy.admin.table import COMMANDS, Right

OPERATING = Path(__file__).parents[4] / "docs" / "operating.md"


def test_commands_that_are_explained_exist() -> None:
    """docs/operating.md says more of some commands than the reference."""
    section = OPERATING.read_text().partition("\n## Admin commands\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").partition(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    explained = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert explained == [name for name in COMMANDS if name in explained]
    assert set(COMMANDS) - set(explained) == {"help", "config"}


def test_privileges_are_named_in_the_security_document() -> None:
    text = (OPERATING.parent / "security.md").read_text().partition("\n## Admin commands\n")[2].partition("\n## ")[0]
    for right in (Right.READ, Right.CHANGE):
        assert all(f"`{action}`" in text for action in right.actions)
