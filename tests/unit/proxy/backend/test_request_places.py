"""Places of requests are given in order, and none is lost."""

from __future__ import annotations

import asyncio

import pytest

from proxy.backend.request_places import RequestPlaces


async def test_a_place_is_taken_until_none_is_free() -> None:
    places = RequestPlaces(2)
    assert [places.take() for _ in range(3)] == [True, True, False]
    places.release()
    assert places.take()


async def test_those_who_wait_get_places_in_order_and_before_others() -> None:
    places, order = RequestPlaces(1), list[int]()

    async def work(number: int) -> None:
        await places.acquire()
        order.append(number)

    assert places.take()
    tasks = [asyncio.ensure_future(work(number)) for number in range(3)]
    await asyncio.sleep(0)
    for number in range(3):
        places.release()
        assert not places.take(), "it was given to the first who waits"
        await tasks[number]
    assert order == [0, 1, 2]
    places.release()
    assert places.take()


@pytest.mark.parametrize("was_given", [False, True], ids=["while it waits", "when it was just given one"])
async def test_one_who_is_cancelled_takes_no_place(was_given: bool) -> None:
    places = RequestPlaces(1)
    assert places.take()
    waiting = asyncio.ensure_future(places.acquire())
    await asyncio.sleep(0)
    if was_given:
        places.release()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not was_given:
        places.release()
    assert places.take()
    assert not places.take()
