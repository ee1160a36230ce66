"""Which way inserts take: a world in which both ways have a known speed, and a clock that is turned by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from catalog.errors import CommandError
from catalog.namespaces import Namespace
from proxy.inserts.write_strategy import (
    CHOICES_BYTES,
    FEWEST_BYTES,
    FIRST_TRY_SECONDS,
    LONGEST_PAUSE_SECONDS,
    PUT_OFF_SECONDS,
    InsertPath,
    Mode,
    Period,
    WriteStrategy,
)
from proxy.request.exchange import Exchange
from proxy.wire.message import Message
from tests.support.exchanges import Told
from tests.support.insert_messages import COLLECTION, message
from tests.support.network import FakeClient
from tests.support.sessions import session

SIZE_BYTES = 100_000


@dataclass
class World:
    """Clients that insert one after the other; each way takes so many seconds per insert of ``SIZE_BYTES``."""

    catalog_seconds: float
    native_seconds: float
    mode: Mode = "auto"
    late_in_each: int = 0
    joins_of_each: float = 0.0
    now_seconds: float = 0.0
    late: int = 0
    put_off_seconds: float = 0.0
    has_unjoined: bool = False
    counted: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.strategy = WriteStrategy(self.mode, lambda: self.now_seconds, self)

    way = "ingest"

    def late_measurements(self, namespace: Namespace) -> int:
        return self.late

    def join_seconds(self, namespace: Namespace) -> float:
        return self.put_off_seconds

    def done(self, seconds: float, code: int = 0) -> None:
        self.counted.append(code != 0)

    def exchange(self) -> Exchange:
        exchange = Exchange(session(), FakeClient(), Message.from_bytes(message()), Told())
        exchange.meter = self
        return exchange

    def begin(self) -> tuple[Exchange, InsertPath]:
        exchange, way = self.exchange(), self.strategy.way(COLLECTION, SIZE_BYTES)
        self.strategy.measure(exchange, COLLECTION, SIZE_BYTES)
        return exchange, way

    def insert(self, *, failed: bool = False) -> InsertPath:
        exchange, way = self.begin()
        if way is InsertPath.CATALOG:
            self.late += self.late_in_each
            self.put_off_seconds += self.joins_of_each
        self.now_seconds += self.catalog_seconds if way is InsertPath.CATALOG else self.native_seconds
        if failed:
            exchange.refuse(CommandError(1, "failed"))
        else:
            exchange.reply(b"")
        return way

    def ways(self, seconds: float) -> list[InsertPath]:
        """The ways of all inserts in this time."""
        end_seconds, ways = self.now_seconds + seconds, []
        while self.now_seconds < end_seconds:
            ways.append(self.insert())
        return ways


def share(ways: list[InsertPath]) -> float:
    """The share of native inserts."""
    return ways.count(InsertPath.NATIVE) / len(ways)


def test_faster_way_is_taken_within_seconds() -> None:
    world = World(catalog_seconds=0.020, native_seconds=0.005)
    assert share(world.ways(FIRST_TRY_SECONDS)) == 0
    world.ways(1)
    assert share(world.ways(10)) > 0.95


def test_catalog_stays_where_it_is_as_fast() -> None:
    world = World(catalog_seconds=0.005, native_seconds=0.0045)
    world.ways(2 * FIRST_TRY_SECONDS)
    assert share(world.ways(60)) < 0.05


@pytest.mark.parametrize(("catalog", "native"), [(0.01, 0.1), (0.1, 0.01)])
def test_slower_way_is_tried_ever_more_rarely(catalog: float, native: float) -> None:
    """In the end for about a quarter of a second every two minutes."""
    world = World(catalog, native)
    world.ways(500)
    start_seconds, slower_seconds = world.now_seconds, 0.0
    while world.now_seconds < start_seconds + 4 * LONGEST_PAUSE_SECONDS:
        before = world.now_seconds
        if (world.insert() is InsertPath.NATIVE) is (native > catalog):
            slower_seconds += world.now_seconds - before
    assert 0 < slower_seconds < 0.01 * 4 * LONGEST_PAUSE_SECONDS


def test_what_changes_is_noticed() -> None:
    world = World(catalog_seconds=0.020, native_seconds=0.005)
    world.ways(300)
    world.native_seconds = 0.1
    world.ways(2 * LONGEST_PAUSE_SECONDS)
    assert share(world.ways(20)) < 0.05


@pytest.mark.parametrize(("native_seconds", "is_native"), [(0.010, False), (0.004, True)])
def test_late_measurements_stay_in_the_catalog_unless_that_is_far_slower(
    native_seconds: float, is_native: bool
) -> None:
    world = World(catalog_seconds=0.020, native_seconds=native_seconds, late_in_each=50)
    world.ways(2 * FIRST_TRY_SECONDS)
    assert (share(world.ways(20)) > 0.5) is is_native


@pytest.mark.parametrize(("joins_seconds", "is_native"), [(0.020, True), (0.005, False)])
def test_joins_count_that_are_put_off(joins_seconds: float, *, is_native: bool) -> None:
    """The catalog is twice as fast for now, but its parts have to be joined later."""
    world = World(catalog_seconds=0.010, native_seconds=0.020, joins_of_each=joins_seconds)
    world.ways(2 * FIRST_TRY_SECONDS)
    assert (share(world.ways(20)) > 0.5) is is_native


def test_little_is_put_off_before_native_inserts_are_tried() -> None:
    """As many parts in a quarter of a second would be joined for seconds."""
    world = World(catalog_seconds=0.001, native_seconds=0.004, joins_of_each=0.010)
    assert share(world.ways(FIRST_TRY_SECONDS)) > 0.5
    assert world.put_off_seconds < 2 * PUT_OFF_SECONDS
    world.ways(LONGEST_PAUSE_SECONDS)
    assert world.put_off_seconds < 10 * PUT_OFF_SECONDS


def test_joins_of_the_catalog_do_not_speak_against_native_inserts() -> None:
    """They hold native inserts up while parts are joined that were made before."""
    world = World(catalog_seconds=0.020, native_seconds=0.010)
    assert share(world.ways(3)) > 0.5
    world.native_seconds, world.has_unjoined = 0.030, True
    world.ways(1)
    world.native_seconds, world.has_unjoined = 0.010, False
    assert share(world.ways(20)) > 0.9


def test_native_inserts_that_stay_slow_are_left_whatever_is_joined() -> None:
    world = World(catalog_seconds=0.020, native_seconds=0.010)
    world.ways(3)
    world.native_seconds, world.has_unjoined = 0.030, True
    world.ways(2 * LONGEST_PAUSE_SECONDS)
    assert share(world.ways(10)) < 0.1


def test_catalog_that_becomes_expensive_is_compared_at_once() -> None:
    world = World(catalog_seconds=0.010, native_seconds=0.020)
    world.ways(300)
    world.catalog_seconds = 0.050
    assert share(world.ways(2)) > 0.5


def test_catalog_that_is_late_is_not_compared_all_the_time() -> None:
    """Native inserts are faster, but leave many small buckets."""
    world = World(catalog_seconds=0.020, native_seconds=0.010, late_in_each=50)
    world.ways(300)
    assert share(world.ways(60)) < 0.05


def test_small_inserts_always_go_through_the_catalog() -> None:
    world = World(catalog_seconds=0.020, native_seconds=0.005)
    world.ways(2 * FIRST_TRY_SECONDS)
    assert world.strategy.way(COLLECTION, SIZE_BYTES) is InsertPath.NATIVE
    assert world.strategy.way(COLLECTION, FEWEST_BYTES - 1) is InsertPath.CATALOG


def test_kinds_of_inserts_are_judged_apart() -> None:
    world = World(catalog_seconds=0.020, native_seconds=0.005)
    world.ways(2 * FIRST_TRY_SECONDS)
    other = replace(COLLECTION, uuid=b"another incarnation")
    assert world.strategy.way(COLLECTION, SIZE_BYTES) is InsertPath.NATIVE
    assert world.strategy.way(COLLECTION, FEWEST_BYTES) is InsertPath.CATALOG
    assert world.strategy.way(other, SIZE_BYTES) is InsertPath.CATALOG


def test_inserts_of_the_other_way_are_not_measured_together_with_it() -> None:
    """Many clients: when the way changes, inserts of the earlier one are still in progress."""
    world = World(catalog_seconds=0.004, native_seconds=0.04)
    clients = [world.begin() for _ in range(16)]
    ways = []
    for _ in range(4_000):
        exchange, way = clients.pop(0)
        # All of them share the server.
        world.now_seconds += world.catalog_seconds if way is InsertPath.CATALOG else world.native_seconds
        exchange.reply(b"")
        ways.append(way)
        clients.append(world.begin())
    assert 0 < share(ways) < 0.1


def test_nothing_counts_before_inserts_of_the_other_way_have_ended() -> None:
    world = World(catalog_seconds=0.0, native_seconds=0.0)
    period = Period(world, COLLECTION.namespace)
    earlier = period.begin(1.0)
    period.next()
    later = period.begin(2.0)
    world.put_off_seconds, world.late = 0.5, 7
    period.end(later, SIZE_BYTES, 3.0, failed=False)
    period.end(earlier, SIZE_BYTES, 4.0, failed=False)
    assert (period.size_bytes, period.busy_seconds, period.put_off_seconds, period.late) == (0, 0.0, 0.0, 0)
    period.end(period.begin(5.0), SIZE_BYTES, 6.0, failed=False)
    world.put_off_seconds, world.late = 0.75, 9
    assert (period.size_bytes, period.busy_seconds, period.put_off_seconds, period.late) == (SIZE_BYTES, 1.0, 0.25, 2)


def test_abandoned_and_failed_inserts_leave_nothing() -> None:
    world = World(catalog_seconds=0.020, native_seconds=0.005)
    for _ in range(50):
        exchange, _ = world.begin()
        exchange.abandon()
        exchange.reply(b"")
        world.insert(failed=True)
    assert world.counted == [False, True] * 50
    world.ways(2 * FIRST_TRY_SECONDS)
    assert share(world.ways(10)) > 0.95


@pytest.mark.parametrize(("mode", "way"), [("native", InsertPath.NATIVE), ("catalog", InsertPath.CATALOG)])
def test_named_way_is_the_way_of_all(mode: Mode, way: InsertPath) -> None:
    world = World(catalog_seconds=0.010, native_seconds=0.010, mode=mode)
    assert set(world.ways(20)) == {way}
    assert world.strategy.way(COLLECTION, 1) is way


def test_choices_are_bounded() -> None:
    strategy = WriteStrategy("auto", lambda: 0.0)
    for number in range(20_000):
        strategy.way(replace(COLLECTION, uuid=b"%d" % number), SIZE_BYTES)
    assert 0 < strategy.memory_bytes <= CHOICES_BYTES
