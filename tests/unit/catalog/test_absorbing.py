"""A bucket gets the rows of others: whatever happens meanwhile, none is lost or doubled."""

from __future__ import annotations

import pytest

from catalog.absorbing import ATTEMPTS, MOST_ORDERS, PAUSE_SECONDS, Absorbing, Order
from catalog.errors import UNAUTHORIZED, WRITE_CONFLICT, BackendUnavailable, CommandError
from tests.support.catalog_parts import measurement
from tests.support.gathering_bench import Step, World, world_of
from tests.support.joining_bench import UNTOUCHED


async def test_rows_that_come_while_others_are_absorbed_are_placed_again() -> None:
    world = await world_of("one", "two")
    one, two = world.processes.values()
    one.write("a", 0, 1)
    two.write("a", 60_000)
    await world.join()
    commit = Step.commit

    async def committed(step: Step) -> None:
        await commit(step)
        one.stage(measurement(3, "a"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "commit", committed)
        await world.look()
    assert world.server.rows == [3]
    assert one.bucket("a").state.rows == 1
    assert one.catalog.take_unclaimed()


async def test_a_bucket_is_forgotten_if_nobody_knows_whether_it_has_absorbed_others() -> None:
    world = await world_of("one", "two")
    one, two = world.processes.values()
    one.write("a", 0, 1)
    two.write("a", 60_000)
    await world.join()
    world.server.loses_replies = True
    await world.look()
    assert world.server.rows == [3]
    assert not one.buckets.series
    world.pass_time(PAUSE_SECONDS)
    await world.look()
    assert world.server.rows == [3]


async def test_readers_are_waited_for_and_other_writers_too() -> None:
    world = await world_of("one", "two")
    one, two = world.processes.values()
    one.write("a", 0, 1)
    two.write("a", 60_000)
    await world.join()
    one.readers.are_active = True
    await world.look()
    assert world.server.rows == [1, 2]
    assert world.server.abandoned == 1
    one.readers.are_active, world.server.error = False, CommandError(WRITE_CONFLICT, "conflict")
    await world.look()
    world.server.error = None
    await world.look()
    assert world.server.rows == [3]


async def test_it_is_tried_so_often() -> None:
    world = await world_of("one", "two")
    one, two = world.processes.values()
    one.write("a", 0, 1)
    two.write("a", 60_000)
    await world.join()
    world.server.error = BackendUnavailable("gone")
    await world.look()
    for _ in range(2 * ATTEMPTS):
        await world.look()
    world.server.error = None
    await world.look()
    assert world.server.rows == [1, 2]


async def test_without_the_right_to_join_nothing_is_tried_again() -> None:
    world = await world_of("one", "two")
    one, two = world.processes.values()
    one.write("a", 0, 1)
    two.write("a", 60_000)
    await world.join()
    world.server.error = CommandError(UNAUTHORIZED, "no")
    await world.look()
    assert [error.code for error in one.refused] == [UNAUTHORIZED]
    world.server.error = None
    await world.look()
    assert world.server.rows == [1, 2]


async def test_one_that_cannot_be_absorbed_does_not_stop_the_others() -> None:
    world = await world_of("one", "two")
    one, two = world.processes.values()
    for meta in "abc":
        one.write(meta, 0, 1)
        two.write(meta, 60_000, **({"v": {"x": 1}} if meta == "b" else {}))
    one.write("b", 2, v=1)
    await world.rest()
    for _ in range(4):
        await world.look()
    assert world.server.rows == [1, 3, 3, 3]


def test_orders_are_bounded() -> None:
    world = World("one", "two")
    one = world.processes["one"]
    absorbing = Absorbing(one.catalog, world.server, one.clock, one.readers, UNTOUCHED, one.refused.append)
    absorbing.ordered([Order(number.to_bytes(12, "big"), [b"x" * 12]) for number in range(MOST_ORDERS + 5)])
    assert absorbing.waiting == MOST_ORDERS
    absorbing.ordered([Order(bytes(12), [])])
    assert absorbing.waiting == MOST_ORDERS
