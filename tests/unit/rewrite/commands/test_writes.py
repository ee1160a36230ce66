"""The table of rewriters for commands that change measurements."""

from __future__ import annotations

from proxy.request.command_table import SEEKING_WRITES
from rewrite.commands.writes import WRITE_REWRITERS


def test_the_router_knows_each_of_them_as_a_write() -> None:
    """Inserts go into the catalog and have no rewriter."""
    assert WRITE_REWRITERS.keys() == SEEKING_WRITES
