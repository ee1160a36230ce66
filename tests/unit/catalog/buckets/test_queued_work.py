"""What is queued for the committer and for look-ups."""

from __future__ import annotations

from catalog.buckets.queued_work import Work


def test_no_queue_is_shared_and_all_are_empty() -> None:
    first, second = Work(), Work()
    assert not first.is_resuming
    assert not first.is_freeing
    queues = ("unclaimed", "ready", "openings", "lookups", "resuming", "failed_openings", "cleared")
    assert not any(getattr(first, name) for name in queues)
    assert all(getattr(first, name) is not getattr(second, name) for name in queues)
