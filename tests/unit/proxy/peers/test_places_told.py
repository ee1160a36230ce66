"""Which ids another process may have made, as far as its pings tell."""

from __future__ import annotations

import pytest

from proxy.peers.places_told import MOST_BETWEEN_PINGS_SECONDS, STEADY_SECONDS, PlacesTold

FIRST = (1 << 24) - 2
"""Places go on from zero."""


def id_of(place: int) -> bytes:
    return b"fourSS" + place.to_bytes(3, "big") + bytes(3)


def pinged(*, places: int, until_seconds: float) -> PlacesTold:
    """Ten times a second, from zero seconds on."""
    told = PlacesTold()
    for tenth in range(round(until_seconds * 10) + 1):
        told.pinged(places, tenth / 10)
    return told


@pytest.mark.parametrize(("place", "is_among"), [(FIRST, True), (0, True), (1, True), (2, False), (FIRST - 1, False)])
def test_it_may_have_made_what_has_one_of_its_places(place: int, is_among: bool) -> None:
    told = pinged(places=4, until_seconds=STEADY_SECONDS)
    assert told.may_have_made(FIRST, id_of(place), STEADY_SECONDS) is is_among


def test_before_its_pings_have_come_for_a_while_nothing_is_known() -> None:
    assert PlacesTold().may_have_made(FIRST, id_of(50), STEADY_SECONDS)
    assert pinged(places=4, until_seconds=1).may_have_made(FIRST, id_of(50), STEADY_SECONDS / 2)


def test_when_they_do_not_come_any_more_nothing_is_known() -> None:
    told = pinged(places=4, until_seconds=STEADY_SECONDS)
    assert told.may_have_made(FIRST, id_of(50), STEADY_SECONDS + MOST_BETWEEN_PINGS_SECONDS + 0.1)


def test_after_a_gap_they_may_have_been_sent_before_it() -> None:
    told = pinged(places=4, until_seconds=STEADY_SECONDS)
    for tenth in range(100, 100 + round(STEADY_SECONDS * 10)):
        told.pinged(4, tenth / 10)
        assert told.may_have_made(FIRST, id_of(50), tenth / 10)
    told.pinged(4, 10 + STEADY_SECONDS)
    assert not told.may_have_made(FIRST, id_of(50), 10 + STEADY_SECONDS)
