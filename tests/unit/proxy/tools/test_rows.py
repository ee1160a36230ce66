"""What sources yield."""

from __future__ import annotations

from proxy.tools.rows import BadRow, Row


def test_a_row_ends_with_its_place_unless_others_share_it() -> None:
    assert (Row(b"", 1, 5).skip, BadRow(1, 5, "no", "x").skip) == (0, 0)
