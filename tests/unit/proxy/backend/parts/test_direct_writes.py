"""Which collections count as written to by deletes and updates of this process."""

from __future__ import annotations

from catalog.namespaces import Namespace
from proxy.backend.parts.direct_writes import RECENT_SECONDS, REMEMBERED, DirectWrites

C, D = Namespace("db", "c"), Namespace("db", "d")


def test_a_write_is_recent_for_some_time_and_in_its_collection_only() -> None:
    now_seconds = 1_000.0
    writes = DirectWrites(lambda: now_seconds)
    assert not writes.are_recent(C)
    writes.note(C)
    now_seconds += RECENT_SECONDS
    assert (writes.are_recent(C), writes.are_recent(D)) == (True, False)
    now_seconds += 1
    assert not writes.are_recent(C)


def test_a_write_at_the_very_moment_counts() -> None:
    """The clock may show the same time before and after it."""
    writes = DirectWrites(lambda: 1_000.0)
    since_seconds = writes.now()
    assert not writes.since(C, since_seconds)
    writes.note(C)
    assert writes.since(C, since_seconds)
    assert not writes.since(C, since_seconds + 1)


def test_of_very_many_collections_none_is_missed() -> None:
    now_seconds = 0.0
    writes = DirectWrites(lambda: now_seconds)
    for number in range(2 * REMEMBERED):
        now_seconds += 1
        writes.note(Namespace("db", str(number)))
    assert all(writes.since(Namespace("db", str(number)), number + 1) for number in range(2 * REMEMBERED))
    assert not writes.since(Namespace("db", str(2 * REMEMBERED - 1)), now_seconds + 1)
    assert not writes.since(Namespace("db", "never written"), REMEMBERED + 1)
