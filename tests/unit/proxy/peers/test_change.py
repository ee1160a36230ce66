"""What was written is read again, and nothing else is taken for it."""

from __future__ import annotations

import pytest

from catalog.namespaces import Namespace
from proxy.peers.change import LONGEST_NAME_BYTES, Change, change_bytes, change_in
from proxy.peers.frames import number_bytes, number_in


@pytest.mark.parametrize("collection", ["x", "", "a.b", "system.buckets.x", "größe"])
@pytest.mark.parametrize("is_extended_range", [True, False])
def test_a_change_is_read_again(collection: str, *, is_extended_range: bool) -> None:
    change = Change(Namespace("db", collection), is_extended_range)
    assert change_in(change_bytes(7, change)) == (7, change)


def test_names_that_no_server_has_are_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        change_bytes(1, Change(Namespace("db", "x" * LONGEST_NAME_BYTES)))


@pytest.mark.parametrize("said", [b"", bytes(5), bytes(5) + b"\xff", bytes(5) + b"x" * (LONGEST_NAME_BYTES + 1)])
def test_other_bytes_are_no_change(said: bytes) -> None:
    with pytest.raises(ValueError, match=r"change|decode"):
        change_in(said)


def test_answers() -> None:
    assert number_in(number_bytes(1 << 31)) == 1 << 31
    with pytest.raises(ValueError, match="not a number"):
        number_in(b"abc")
