"""Buckets of several processes become one: who tells, who gathers, who gives up and who absorbs, and what may fail."""

from __future__ import annotations

import asyncio

from catalog.background.families import BUCKETS_AT_ONCE
from catalog.background.gathering import MOST_GIVEN_UP, Alone
from catalog.bson.codec import decode
from catalog.buckets.resting import LOOKED_AT_ONCE
from tests.support.catalog_parts import START_MS
from tests.support.gathering_bench import Process, world_of


async def test_what_two_processes_wrote_becomes_one_bucket_that_grows_on() -> None:
    world = await world_of("one", "two")
    one, two = world.processes.values()
    one.write("a", 0, 1, 2)
    two.write("a", 10, 11)
    one.write("b", 5)
    await world.rest()
    assert world.server.rows == [1, 5]
    absorbed, given_up = ([getattr(each.gathering, name) for each in (one, two)] for name in ("absorbed", "given_up"))
    assert sum(absorbed) == sum(given_up) == 1
    (owner,) = (each for each, count in zip((one, two), absorbed, strict=True) if count)
    assert owner.bucket("a").state.rows == 5
    owner.write("a", 20, 21)
    await world.rest()
    assert world.server.rows == [1, 7]
    assert owner.bucket("a").state.rows == 7
    owner.write("a", 22, 23, 24)
    owner.write("a", 25)
    await world.rest()
    assert world.server.rows == [1, 1, 10]


async def test_the_bucket_that_starts_first_absorbs_the_others() -> None:
    world = await world_of("one", "two", "three")
    one, two, three = world.processes.values()
    one.write("a", 120_000)
    two.write("a", 0, 1)
    three.write("a", 60_000)
    await world.rest()
    assert world.server.rows == [4]
    assert [each.gathering.absorbed for each in (one, two, three)] == [0, 2, 0]
    (document,) = map(decode, world.server.documents.values())
    assert int(document["control"]["min"]["t"]) == START_MS
    assert list(document["data"]["t"]) == ["0", "1", "2", "3"]
    assert two.bucket("a").state.rows == 4


async def test_the_loop_goes_on_while_many_buckets_are_gathered() -> None:
    """Few are told of, asked for and given up at once; and all are by and by."""
    world = await world_of("one", "two")
    one, two = world.processes.values()
    count = 2 * MOST_GIVEN_UP
    for number in range(count):
        one.write(number, 0)
        two.write(number, 60_000)
    await world.join()
    turns = 0

    async def look(process: Process) -> int:
        nonlocal turns
        before, looking = turns, asyncio.create_task(process.gathering.look())
        while not looking.done():
            await asyncio.sleep(0)
            turns += 1
        return turns - before

    assert await look(two) >= count // LOOKED_AT_ONCE
    await look(one)
    world.pass_time(2)
    assert await look(one) >= 2 * count // BUCKETS_AT_ONCE
    assert two.gathering.given_up == count


async def test_a_process_gives_up_a_limited_number_at_once() -> None:
    world = await world_of("one", "two")
    one = world.processes["one"]
    for number in range(MOST_GIVEN_UP + 10):
        one.write(number, 0)
    await world.join()
    resting, ids = one.catalog.growth.resting, []
    while resting.untold:
        ids += [each.stored_id for each in resting.take(one.clock.now, 0.0, b"")]
    assert len(ids) == MOST_GIVEN_UP + 10
    assert len(one.gathering.give_up(ids)) == MOST_GIVEN_UP


async def test_series_and_buckets_that_belong_to_one_process_stay() -> None:
    world = await world_of("one", "two")
    one, two = world.processes.values()
    one.write("a", 0, 1)
    two.write("b", 0, 1)
    await world.rest()
    assert world.server.rows == [2, 2]
    assert world.server.steps == 2


async def test_who_is_alone_remembers_nothing() -> None:
    world = await world_of("one")
    (one,) = world.processes.values()
    one.gathering.link(Alone())
    one.write("a", 0, 1)
    await world.rest()
    assert not one.catalog.growth.resting.is_wanted


async def test_a_bucket_that_gets_rows_again_is_not_given_up() -> None:
    world = await world_of("one", "two")
    one, two = world.processes.values()
    one.write("a", 0, 1)
    two.write("a", 60_000)
    world.pass_time(2.5)
    for each in (one, two):
        await each.joining.join_due()
    world.pass_time(1)
    for each in (two, one):
        await each.gathering.look()
    two.write("a", 60_001)
    world.pass_time(2)
    await one.gathering.look()
    assert world.server.rows == [1, 1, 2]
    assert two.bucket("a").state.rows == 2


async def test_a_bucket_that_gets_rows_again_absorbs_nothing() -> None:
    world = await world_of("one", "two")
    one, two = world.processes.values()
    one.write("a", 0, 1)
    two.write("a", 60_000)
    await one.joining.join_due()
    world.pass_time(3.5)
    for each in (one, two):
        await each.joining.join_due()
    for each in (two, one):
        await each.gathering.look()
    one.write("a", 2)
    world.pass_time(2)
    await one.gathering.look()
    await one.gathering.look()
    assert world.server.rows == [1, 1, 2]
    assert not two.buckets.series


async def test_what_was_given_up_to_nobody_stays_as_it_is() -> None:
    world = await world_of("one", "two")
    one, two = world.processes.values()
    one.links.are_cut = True
    one.write("a", 0, 1)
    two.write("a", 60_000)
    await world.rest()
    assert world.server.rows == [1, 2]
    two.write("a", 60_001)
    assert world.server.rows == [1, 1, 2]


async def test_another_process_gathers_when_it_comes() -> None:
    """And is told of what rested before."""
    world = await world_of("one", "two")
    one, two = world.processes.values()
    one.write("a", 0, 1)
    await world.rest()
    first = Process("a first one", world.server, world.processes)
    await first.gathering.look()
    two.write("a", 60_000)
    await world.join()
    for _ in range(3):
        await world.look()
    assert world.server.rows == [3]
    assert one.gathering.absorbed == 1
