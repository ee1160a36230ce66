"""What prevents joins, and for how long; ``test_growth`` shows what follows for buckets."""

from __future__ import annotations

from catalog.buckets.open_bucket import CollectionBuckets
from catalog.buckets.stats import Counters
from catalog.growth.join_obstacles import BLOCK_EXPIRY_SECONDS, JoinObstacles
from tests.support.catalog_parts import ManualClock, virtual


class Bench:
    def __init__(self, *, may_join: bool = True) -> None:
        self.clock = ManualClock()
        self.obstacles = JoinObstacles(self.clock, may_join=may_join, blocked_seconds=30.0)
        self.one, self.other = (CollectionBuckets(virtual(name), Counters()) for name in ("one", "other"))

    def are_there(self) -> tuple[bool, bool]:
        return self.obstacles.are_there(self.one), self.obstacles.are_there(self.other)

    def readers_stay(self, tries: int) -> None:
        for _ in range(tries):
            self.clock.now += 10
            self.obstacles.tried(self.one, alone=False)


def test_readers_are_an_obstacle_of_their_collection_once_they_stay() -> None:
    bench = Bench()
    assert not bench.obstacles.may_be_there
    bench.readers_stay(3)
    assert bench.obstacles.may_be_there
    assert bench.are_there() == (False, False)
    bench.readers_stay(1)
    assert bench.are_there() == (True, False)
    assert not bench.obstacles.are_everywhere
    bench.obstacles.tried(bench.one, alone=True)
    assert bench.are_there() == (False, False)
    assert not bench.obstacles.may_be_there


def test_what_is_not_tried_any_more_is_forgotten() -> None:
    bench = Bench()
    bench.readers_stay(4)
    bench.clock.now += BLOCK_EXPIRY_SECONDS
    assert bench.are_there() == (True, False)
    bench.clock.now += 1
    assert bench.are_there() == (False, False)
    assert not bench.obstacles.may_be_there


def test_other_proxies_and_missing_rights_concern_all_collections() -> None:
    bench = Bench()
    assert bench.obstacles.beside_other_proxies(are_there=True)
    assert bench.are_there() == (True, True)
    assert bench.obstacles.beside_other_proxies(are_there=True, keep_readers=True)
    assert bench.are_there() == (False, False), "joins affect nobody then"
    assert bench.obstacles.is_beside_other_proxies
    assert not bench.obstacles.beside_other_proxies(are_there=False)
    assert bench.are_there() == (False, False)
    assert bench.obstacles.refused()
    assert not bench.obstacles.refused(), "that is known"
    assert bench.obstacles.are_everywhere
    assert Bench(may_join=False).are_there() == (True, True)
