"""Proxies that ask one another, under seeded chance: each statement is stored once, wherever it is sent (W102).

And each row is seen once through any of them, while all of them write and join parts.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from tests.simulation.replaying import replayable
from tests.simulation.server import Faults
from tests.simulation.world import Plan, World

SEEDS = 2
SEEDS_WITH_READERS = 2
"""These take longer."""
SEEDS_OF_GATHERING = 6
"""By seed, none to some tens of buckets are absorbed."""
SEEDS_OF_WAITS = 8
FIRST_SEED = int(os.environ.get("TSPROXY_SIMULATION_SEED", "0"))
ONE_SEED = "TSPROXY_SIMULATION_SEED" in os.environ


def plan(seed: int) -> Plan:
    chance = random.Random(seed)
    return Plan(
        writers=chance.choice((4, 12)),
        inserts_each=30,
        series=chance.choice((1, 6)),
        meddling=False,
        faults=Faults.none(),
        restarts=chance.random() < 0.7,
        restart_pauses_seconds=(0.05, 0.5, 3),
        retries_after_restart=True,
        proxies=chance.choice((2, 3, 5)),
        linked=True,
        cuts=chance.random() < 0.7,
    )


@pytest.mark.timeout(3600)
def test_each_statement_is_stored_once(scale: float) -> None:
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if ONE_SEED else max(1, int(SEEDS * scale)))):
        with replayable(seed, "test_linked"):
            World(seed, plan(seed)).run()


@pytest.mark.timeout(3600)
def test_readers_of_any_proxy_see_every_row_once(scale: float) -> None:
    """A process that joins parts asks the others to keep their readers waiting, whatever happens to it or to them."""
    joins = scans = holds = 0
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if ONE_SEED else max(2, int(SEEDS_WITH_READERS * scale)))):
        # No join runs on its own while readers are let in again.
        faults = Faults(stall=0, late=0) if seed % 3 else Faults.none()
        drawn = replace(plan(seed), in_parts=True, sealed=seed % 2 == 1, readers=4, faults=faults)
        # Few buckets, so that many a join meets a reader between two parts.
        world = World(seed, replace(drawn, writers=8, inserts_each=20, series=6))
        with replayable(seed, "test_linked", "readers"):
            world.run()
        assert world.network is not None
        joins, scans = joins + world.server.joins, scans + world.server.scans
        holds += sum(node.numbers.held_for_others for node in world.network.nodes.values())
    assert ONE_SEED or joins > 20
    assert ONE_SEED or scans > 10
    assert ONE_SEED or holds > 20


@pytest.mark.timeout(3600)
def test_buckets_of_several_proxies_become_one(scale: float) -> None:
    """While some writers go on, links are cut, processes are killed, and readers count every row."""
    absorbed = scans = 0
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if ONE_SEED else max(6, int(SEEDS_OF_GATHERING * scale)))):
        faults = Faults(stall=0, late=0) if seed % 3 else Faults.none()
        drawn = replace(plan(seed), in_parts=True, readers=1, faults=faults, max_count=300)
        drawn = replace(drawn, cuts=seed % 4 == 2, restarts=seed % 4 == 3, restart_pauses_seconds=(5, 20, 60))
        world = World(seed, replace(drawn, writers=8, inserts_each=30, series=4, lull_seconds=15.0))
        with replayable(seed, "test_linked", "become_one"):
            world.run()
        assert world.network is not None
        scans += world.server.scans
        absorbed += sum(node.gathering.absorbed for node in world.network.nodes.values())
    assert ONE_SEED or absorbed > 20
    assert ONE_SEED or scans > 10


@pytest.mark.timeout(3600)
def test_statements_that_wait_while_links_are_cut_are_executed_once(scale: float) -> None:
    """A process that waits for a connection, or pursues a commit, may lose its sessions to others meanwhile."""
    reclaimed = 0
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if ONE_SEED else max(4, int(SEEDS_OF_WAITS * scale)))):
        chance = random.Random(seed)
        lossy = Faults.none() if chance.random() < 0.2 else Faults(stall=0, late=0, failed_read=0)
        faults = replace(lossy, waits=chance.choice((0.02, 0.1)))
        drawn = replace(
            plan(seed), faults=faults, cuts=True, restarts=seed % 3 == 0, restart_pauses_seconds=(5, 20, 60)
        )
        world = World(seed, replace(drawn, writers=8, inserts_each=60, series=4))
        with replayable(seed, "test_linked", "wait"):
            world.run()
        reclaimed += world.server.withheld
    assert ONE_SEED or reclaimed > 10
