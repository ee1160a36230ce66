from __future__ import annotations

from proxy.wire.request_ids import next_request_id


def test_request_ids_are_positive_and_differ() -> None:
    ids = [next_request_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(0 < number < 2**31 for number in ids)
