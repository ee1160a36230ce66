from __future__ import annotations

from proxy.request.command_table import TABLE
from rewrite.registry import REWRITERS


def test_every_rewriter_is_of_a_command_that_is_routed() -> None:
    assert set(REWRITERS) <= set(TABLE)


def test_reads_writes_and_statistics_are_rewritten() -> None:
    assert {"find", "aggregate", "count", "distinct", "update", "delete", "collStats"} <= set(REWRITERS)
