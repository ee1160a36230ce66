from __future__ import annotations

import tracemalloc

from proxy.observe.slow_ring import RING_BYTES, SlowEntry, SlowRing


def entry(number: int, size: int = 10) -> SlowEntry:
    return SlowEntry(f"at {number}", "slow command", {"command": "find", "shape": "x" * size, "steps": ["y" * size]})


def test_the_newest_come_first() -> None:
    ring = SlowRing()
    for number in range(5):
        ring.add(entry(number))
    assert [each.at for each in ring.latest(2)] == ["at 4", "at 3"]
    assert len(ring.latest(100)) == 5
    assert ring.latest(0) == ring.latest(-1) == []
    assert ring.latest(1)[0].as_document() == {
        "at": "at 4",
        "event": "slow command",
        "command": "find",
        "shape": "x" * 10,
        "steps": ["y" * 10],
    }


def test_the_oldest_give_way() -> None:
    ring = SlowRing(10_000)
    for number in range(1_000):
        ring.add(entry(number))
        assert ring.size_bytes <= 10_000
    assert ring.latest(1)[0].at == "at 999"
    assert 0 < len(ring) < 10
    ring.add(entry(0, 20_000))
    assert (len(ring), ring.size_bytes) == (0, 0)


def test_its_memory_is_bounded() -> None:
    ring = SlowRing()
    tracemalloc.start()
    try:
        for number in range(10_000):
            # Texts of their own, as those of clients are.
            values = dict.fromkeys(("shape", "comment", "namespace"), f"{number}" + "ä" * (number % 300))
            ring.add(SlowEntry(f"at {number}", "slow command", {**values, "bytes_in": number, "ms": number / 7}))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(ring) > 100
    assert held_bytes < 1.2 * RING_BYTES
    ring.clear()
    assert (len(ring), ring.size_bytes) == (0, 0)
