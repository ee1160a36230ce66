"""Slow commands of the same kind are one group."""

from __future__ import annotations

from typing import Any

from proxy.observe.slow_groups import grouped
from proxy.observe.slow_ring import SlowEntry


def entry(at: str, duration_ms: float = 1.0, **values: Any) -> SlowEntry:
    return SlowEntry(at, "slow command", {"command": "find", "namespace": "d.c", "duration_ms": duration_ms, **values})


def test_alike_ones_are_counted_together() -> None:
    entries = [entry("09", 5.0, comment="b"), entry("08", 70.0, comment="a"), entry("07", 3.0)]
    (group,) = grouped(entries, "00", 10)
    assert (group.count, group.sum_ms, group.slowest_ms, group.latest_at) == (3, 78.0, 70.0, "09")
    assert group.slowest is entries[1]


def test_command_namespace_and_shape_make_a_difference() -> None:
    entries = [entry("9"), entry("8", command="count"), entry("7", namespace="d.e"), entry("6", shape="{}")]
    assert len(grouped(entries, "0", 10)) == 4


def test_those_that_took_most_time_come_first_and_there_are_not_too_many() -> None:
    entries = [entry(f"{99 - number}", float(number), namespace=f"d.c{number}") for number in range(20)]
    groups = grouped(entries, "00", 3)
    assert [group.slowest.values["namespace"] for group in groups] == ["d.c19", "d.c18", "d.c17"]


def test_waits_of_all_commands_say_nothing_about_one() -> None:
    """After a pause or a failover, each group would have its length many times."""
    slow = [entry("9", 700.0, namespace="d.slow"), entry("8", 9_000.0, namespace="d.slow", primary_ms=8_900.0)]
    paused = [entry("7", 60_005.0, namespace="d.paused", pause_ms=60_000.0) for _ in range(9)]
    first, second = grouped(slow + paused, "0", 10)
    assert (first.slowest, first.sum_ms) == (slow[0], 800.0)
    assert (second.slowest.values["namespace"], second.count, second.sum_ms) == ("d.paused", 9, 45.0)


def test_other_waits_count() -> None:
    """The proxy has made the client wait, for reasons of its own."""
    entries = [entry("9", 50.0, namespace="d.busy"), entry("8", 90.0, namespace="d.waits", queue_ms=89.0)]
    assert grouped(entries, "0", 1)[0].slowest is entries[1]


def test_older_ones_are_not_looked_at() -> None:
    assert [group.latest_at for group in grouped([entry("09"), entry("05"), entry("04")], "05", 10)] == ["09"]
    (group,) = grouped([entry("09"), entry("05"), entry("04")], "05", 10)
    assert group.count == 2


def test_an_entry_without_a_duration_is_a_group_too() -> None:
    (group,) = grouped([SlowEntry("9", "an insert creates a collection", {"namespace": "d.c"})], "0", 10)
    assert (group.count, group.slowest_ms) == (1, 0.0)
