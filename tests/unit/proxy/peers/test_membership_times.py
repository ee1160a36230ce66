"""A process that has just begun has seen and lost nobody."""

from __future__ import annotations

from proxy.peers.membership_times import MembershipTimes


async def test_at_the_start_nobody_was_there() -> None:
    times = MembershipTimes(7.0)
    assert times.beat == 7.0
    assert times.gone_until < 0 < times.certain_until
    assert (times.is_lapsed, times.departures, times.looks_begun, times.looked) == (False, 0, 0, 0)
    assert not times.wakes.is_set()
