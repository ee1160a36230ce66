"""Where a native collection of another version is not what 6.0.5 is, so that a test of equality must fail there.

Tests are named by file and name, with their parameters or without. The failures are strict: a test that passes after
all is an error, and the entry goes.
"""

from __future__ import annotations

from collections.abc import Mapping

BEFORE_6_0: Mapping[str, str] = {}
"""Test → why it must fail on 5.0."""

AFTER_6_0_5: Mapping[str, str] = {}
"""Test → why it must fail on later releases of 6.0."""


def expected_failure(test: str, version: tuple[int, ...]) -> str | None:
    """Why ``test``, ``file.py::name[parameters]``, must fail on servers of ``version``; ``None`` when it must not."""
    table: Mapping[str, str] = {}
    if version < (6, 0, 0):
        table = BEFORE_6_0
    elif version > (6, 0, 5):
        table = AFTER_6_0_5
    return table.get(test) or table.get(test.partition("[")[0])
