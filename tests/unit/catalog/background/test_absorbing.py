"""A bucket gets the rows of others: whatever happens meanwhile, none is lost or doubled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.background.absorbing import ATTEMPTS, MOST_DOCUMENTS, PAUSE_SECONDS, Absorbing, Order
from catalog.background.replacing import Forms
from catalog.buckets.resting import Given
from catalog.errors import UNAUTHORIZED, WRITE_CONFLICT, BackendUnavailable, CommandError
from catalog.namespaces import Namespace
from catalog.parts import bucket_of
from tests.support.catalog_parts import measurement, virtual
from tests.support.gathering_bench import Process, Step, World, one_series_of_two, world_of
from tests.support.joining_bench import UNTOUCHED


async def test_rows_that_come_while_others_are_absorbed_are_placed_again() -> None:
    world, one, _ = await one_series_of_two()
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
    world, one, _ = await one_series_of_two()
    world.server.loses_replies = True
    await world.look()
    assert world.server.rows == [3]
    assert not one.buckets.series
    world.pass_time(PAUSE_SECONDS)
    await world.look()
    assert world.server.rows == [3]


async def test_readers_are_waited_for_and_other_writers_too() -> None:
    world, one, _ = await one_series_of_two()
    one.readers.are_active = True
    await world.look()
    assert world.server.rows == [1, 2]
    assert world.server.abandoned == 0
    one.readers.are_active, one.readers.still_kept_out = False, False
    await world.look()
    assert world.server.rows == [1, 2]
    assert world.server.abandoned == 1
    one.readers.still_kept_out = True
    one.readers.are_active, world.server.error = False, CommandError(WRITE_CONFLICT, "conflict")
    await world.look()
    world.server.error = None
    await world.look()
    assert world.server.rows == [3]


async def test_readers_of_one_database_do_not_keep_others_from_absorbing() -> None:
    world = await world_of("one", "two")
    one, two = world.processes.values()
    other = replace(virtual("ts2", uuid=2), namespace=Namespace("other", "ts2"))
    for process, offset_ms in ((one, 0), (two, 60_000)):
        process.write("a", offset_ms)
        process.buckets = process.catalog.collection(other)
        process.write("b", offset_ms)
    await world.join()
    one.readers.databases = {"db"}
    await world.look()
    assert world.server.rows == [1, 1, 2]
    tried = one.readers.tried
    for _ in range(9):
        await one.gathering.look()
    assert one.readers.tried == tried, "readers were asked to wait again at once"
    one.readers.databases = set()
    world.pass_time(PAUSE_SECONDS)
    await world.look()
    assert world.server.rows == [2, 2]


async def test_an_error_of_our_own_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    noticed: list[Exception] = []
    monkeypatch.setattr(Process, "forms", Forms(noticed.append))
    world, _, _ = await one_series_of_two()
    world.server.error = TypeError("a bug")
    await world.look()
    assert noticed == [world.server.error]
    world.server.error = None
    world.pass_time(PAUSE_SECONDS)
    await world.look()
    assert world.server.rows == [1, 2]


async def test_it_is_tried_so_often() -> None:
    world, _, _ = await one_series_of_two()
    world.server.error = BackendUnavailable("gone")
    await world.look()
    for _ in range(2 * ATTEMPTS):
        await world.look()
    world.server.error = None
    await world.look()
    assert world.server.rows == [1, 2]


async def test_without_the_right_to_join_nothing_is_tried_again() -> None:
    world, one, _ = await one_series_of_two()
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
    others = [Given(b"x" * 12, 1)] * 10
    absorbing.ordered([Order(number.to_bytes(12, "big"), others) for number in range(MOST_DOCUMENTS)])
    assert MOST_DOCUMENTS - 300 < absorbing.waiting <= MOST_DOCUMENTS


async def test_a_document_to_which_another_process_has_appended_stays_as_it_is() -> None:
    """That one may not know yet whether it has, and would write the row again."""
    world, one, two = await one_series_of_two()
    late = measurement(60_001, "a")
    (stored_id,) = (key for key in world.server.documents if two.catalog.is_under_way(key))
    rows = [measurement(60_000, "a"), late]
    start_ms = two.bucket("a").state.start_ms
    world.server.documents[stored_id] = bucket_of(stored_id, b"t", b"m", late.meta, start_ms, rows)
    await world.look()
    await world.look()
    assert world.server.rows == [2, 2]
    assert one.gathering.absorbed == 0


async def test_a_bucket_that_would_be_too_large_stays_as_it_is() -> None:
    world = await world_of("one", "two")
    one, two = world.processes.values()
    for process, offset_ms in ((one, 0), (two, 60_000)):
        process.write("a", offset_ms, text="x" * 70_000)
        process.write("b", offset_ms, text="x" * 20_000)
    await world.rest()
    for _ in range(3):
        await world.look()
    assert world.server.rows == [1, 1, 2]


async def test_nothing_is_absorbed_while_joins_are_impossible() -> None:
    world, one, _ = await one_series_of_two()
    steps = world.server.steps
    one.catalog.growth.obstacles.beside_other_proxies(are_there=True)
    await world.look()
    await world.look()
    assert world.server.rows == [1, 2]
    assert world.server.steps == steps
    assert not one.catalog.growth.resting.is_wanted


async def test_orders_of_one_collection_are_one_step() -> None:
    world = await world_of("one", "two")
    one, two = world.processes.values()
    for process, offset_ms in ((one, 0), (two, 60_000)):
        for meta in "abcdef":
            process.write(meta, offset_ms)
    await world.join()
    steps = world.server.steps
    await world.look()
    assert world.server.rows == [2] * 6
    assert world.server.steps == steps + 1


@pytest.mark.parametrize("damage", ["itself", "earlier", "live"])
async def test_orders_that_make_no_sense_change_nothing(damage: str) -> None:
    world = await world_of("one", "two")
    one, two = world.processes.values()
    one.write("a", 60_000)
    two.write("a", 0)
    one.write("b", 0, 1)
    await world.join()
    one.gathering.look = two.gathering.look = None  # type: ignore[assignment, method-assign]
    resting = one.catalog.growth.resting
    told = {each.rows: each for each in resting.take(one.clock.now, 0.0, b"")}
    others = {
        "itself": Given(told[1].stored_id, 1),
        "earlier": Given(next(key for key in world.server.documents if two.catalog.is_under_way(key)), 1),
        "live": Given(told[2].stored_id, 2),
    }
    before = dict(world.server.documents)
    absorbing = Absorbing(one.catalog, world.server, one.clock, one.readers, UNTOUCHED, one.refused.append)
    absorbing.ordered([Order(told[1].stored_id, [others[damage]])])
    await absorbing.work()
    assert world.server.documents == before
    assert absorbing.waiting == 0
