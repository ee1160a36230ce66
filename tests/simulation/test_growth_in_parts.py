"""Buckets in parts under seeded chance: every row is stored once and seen once, whatever happens to joins."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from tests.simulation.replaying import replayable
from tests.simulation.server import Faults
from tests.simulation.world import Plan, World

SEEDS = 4
FIRST_SEED = int(os.environ.get("TSPROXY_SIMULATION_SEED", "0"))
ONE_SEED = "TSPROXY_SIMULATION_SEED" in os.environ
KNOWN_SEEDS = (8, 19, 26, 35)
"""A bucket of which a client had changed meta and deleted a row was not recognised, and written again; parts that were
changed came back with a join; a late copy of an insert did after another process had joined it; a bucket with parts was
appended to by a number of rows that another process had added. They take minutes, so long runs have them only."""
LIVELY = Faults(stall=0, late=0)
"""Faults after which no join runs on its own while readers are let in again."""


def simulate(seed: int, plan: Plan, test: str) -> World:
    world = World(seed, plan)
    with replayable(seed, "test_growth_in_parts", test):
        world.run()
    return world


def seeds(scale: float, count: int = SEEDS) -> range:
    return range(FIRST_SEED, FIRST_SEED + (1 if ONE_SEED else max(1, int(count * scale))))


@pytest.mark.timeout(3600)
def test_anything_happens_to_joins(scale: float) -> None:
    """Lost, refused and late joins, restarts, meddlers, drops; by transactions and by one operation."""
    joins = steps = 0
    for seed in seeds(scale):
        drawn = Plan.drawn(random.Random(seed))
        plan = replace(drawn, in_parts=True, sealed=seed % 2 == 1)
        world = simulate(seed, plan, "anything")
        joins, steps = joins + world.server.joins, steps + world.loop.steps
    assert ONE_SEED or joins > 50
    assert ONE_SEED or steps > 15_000


@pytest.mark.timeout(3600)
def test_what_is_deleted_while_it_is_joined_stays_deleted(scale: float) -> None:
    """A process that knows of no others does not compare what it joins, unless it deletes itself (U8)."""
    joins = 0
    for seed in seeds(scale, 4):
        plan = Plan(in_parts=True, sealed=seed % 4 != 3, deletes=True, meddling=False, restarts=False)
        plan = replace(plan, faults=LIVELY if seed % 2 else Faults.none(), meddling_pauses_seconds=(0.001, 0.01, 0.1))
        joins += simulate(seed, plan, "stays_deleted").server.joins
    assert ONE_SEED or joins > 20


@pytest.mark.timeout(3600)
def test_two_proxies_on_one_collection(scale: float) -> None:
    """Each appends to, sweeps and joins what the other wrote, and neither hears of its direct writes (W129)."""
    joins = 0
    known = KNOWN_SEEDS if scale > 1 and not ONE_SEED else ()
    for seed in (*seeds(scale, SEEDS // 2), *known):
        plan = replace(Plan.drawn(random.Random(seed)), in_parts=True, sealed=seed % 2 == 1, proxies=2)
        if seed % 5:
            plan = replace(plan, meddling=True, meddling_pauses_seconds=(0.001, 0.01, 0.1))
        joins += simulate(seed, plan, "proxies").server.joins
    assert ONE_SEED or joins > 50


@pytest.mark.timeout(3600)
def test_two_proxies_of_which_one_grows_in_place(scale: float) -> None:
    """During an upgrade, or with other settings."""
    for seed in seeds(scale, 2):
        plan = replace(Plan.drawn(random.Random(seed)), in_parts=True, sealed=seed % 2 == 1, proxies=2)
        simulate(seed, replace(plan, in_place=(1,)), "place")


@pytest.mark.timeout(3600)
def test_readers_see_every_row_once(scale: float) -> None:
    """In one command of several steps, and with cursors, while parts are joined and processes start anew."""
    joins = scans = 0
    for seed in seeds(scale, 3):
        drawn = Plan.drawn(random.Random(seed))
        faults = LIVELY if seed % 3 else Faults.none()
        plan = replace(drawn, in_parts=True, sealed=seed % 2 == 1, readers=4, faults=faults, meddling=False)
        # Long enough, and with few enough buckets, for many a join to meet a reader between two parts.
        plan = replace(plan, writers=12, inserts_each=30, series=6, memory_threshold_bytes=100_000_000)
        server = simulate(seed, plan, "readers").server
        joins, scans = joins + server.joins, scans + server.scans
    assert ONE_SEED or joins > 100
    assert ONE_SEED or scans > 50


@pytest.mark.timeout(3600)
def test_without_the_right_to_join_growth_is_in_place(scale: float) -> None:
    for seed in seeds(scale, 1):
        plan = Plan(in_parts=True, may_join=False, meddling=False, restarts=False)
        assert simulate(seed, plan, "right").server.joins == 0
