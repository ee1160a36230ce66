"""Proxies that ask one another, under seeded chance: each statement is stored once, wherever it is sent (W102).

And each row is seen once through any of them, while all of them write and join parts.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.replaying import replayable
from tests.simulation.server import Faults
from tests.simulation.world import Plan, World

SEEDS = 2
SEEDS_WITH_READERS = 2
"""These take longer."""
SEEDS_OF_GATHERING = 4
"""By seed, none to some tens of buckets are absorbed."""
SEEDS_OF_WAITS = 4
SEEDS_ONE_WAY = 3
SEEDS_OF_COALESCING = 3
SEEDS_OF_BOTH = 3
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
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if ONE_SEED else max(4, int(SEEDS_OF_GATHERING * scale)))):
        faults = Faults(stall=0, late=0) if seed % 3 else Faults.none()
        drawn = replace(plan(seed), in_parts=True, readers=1, faults=faults, max_count=300)
        drawn = replace(drawn, cuts=seed % 4 == 2, restarts=seed % 4 == 3, restart_pauses_seconds=(5, 20, 60))
        world = World(seed, replace(drawn, writers=8, inserts_each=22, series=4, lull_seconds=15.0))
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
        drawn = replace(plan_with_waits(seed), cuts=True)
        world = World(seed, replace(drawn, writers=8, inserts_each=40, series=4))
        with replayable(seed, "test_linked", "wait"):
            world.run()
        reclaimed += world.server.withheld
    assert ONE_SEED or reclaimed > 10


def plan_with_waits(seed: int) -> Plan:
    chance = random.Random(seed)
    lossy = Faults.none() if chance.random() < 0.2 else Faults(stall=0, late=0, failed_read=0)
    faults = replace(lossy, waits=chance.choice((0.02, 0.1)))
    return replace(plan(seed), faults=faults, cuts=False, restarts=seed % 3 == 0, restart_pauses_seconds=(5, 20, 60))


def small_plan_with_waits(seed: int, **more: Any) -> Plan:
    proxies = 3 if seed % 4 == 1 else 2
    return replace(plan_with_waits(seed), proxies=proxies, writers=8, inserts_each=30, series=4, **more)


def worlds_of(seeds: int, scale: float, selected: str, drawn: Callable[[int], Plan]) -> Iterator[World]:
    """One after the other, each at its end."""
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if ONE_SEED else max(seeds, int(seeds * scale)))):
        world = World(seed, drawn(seed))
        with replayable(seed, "test_linked", selected):
            world.run()
        yield world


def cut_one_way(seed: int) -> Plan:
    return small_plan_with_waits(seed, cuts=True, one_way=True)


def coalescing(seed: int) -> Plan:
    """Commands have several documents, of which some are refused; their replies are lost, and they are killed."""
    small = small_plan_with_waits(seed, coalesced_share=1.0, linger_seconds=0.3)
    faults = replace(small.faults, interrupted=0.1, lost_after=0.1, statement_error=0.03)
    return replace(small, writers=20, inserts_each=20, faults=faults, restarts=seed % 3 == 1)


def coalescing_and_cut_one_way(seed: int) -> Plan:
    return small_plan_with_waits(seed, cuts=True, one_way=True, coalesced_share=0.7, linger_seconds=0.02)


@pytest.mark.timeout(3600)
def test_links_that_are_cut_in_one_direction_double_nothing(scale: float) -> None:
    """Questions arrive, sessions are given away, and the answers are lost; or pings arrive, and questions do not."""
    worlds = list(worlds_of(SEEDS_ONE_WAY, scale, "one_direction", cut_one_way))
    assert ONE_SEED or sum(world.server.withheld for world in worlds) > 3


@pytest.mark.timeout(3600)
def test_coalesced_inserts_are_executed_once(scale: float) -> None:
    """Retries of what one process has coalesced are executed neither in buckets nor by another process."""
    worlds = list(worlds_of(SEEDS_OF_COALESCING, scale, "coalesced", coalescing))
    natively = [world.natively for world in worlds if world.natively is not None]
    assert ONE_SEED or sum(each.inserted for each in natively) > 100
    assert ONE_SEED or sum(each.repeated for each in natively) > 3


@pytest.mark.timeout(3600)
def test_coalescing_while_links_are_cut_in_one_direction_doubles_nothing(scale: float) -> None:
    """Contested documents wait for connections, or are pursued, in a command that they share with others."""
    worlds = list(worlds_of(SEEDS_OF_BOTH, scale, "coalescing_while", coalescing_and_cut_one_way))
    assert ONE_SEED or sum(world.server.withheld for world in worlds) > 3


def numbered(seed: int, **more: Any) -> Plan:
    """The backend is a replica set; clients send statements to any two proxies at once, whether these can ask or not.

    Messages to the backend may be late, also when the links are sound again.
    """
    drawn = plan(seed)
    return replace(
        drawn,
        writers=8,
        inserts_each=30,
        series=4,
        proxies=3 if seed % 3 == 1 else 2,
        faults=replace(Faults.none(), late=0.02),
        restarts=False,
        cuts=True,
        numbered=True,
        **more,
    )


def numbered_and_cut_one_way(seed: int) -> Plan:
    """One of two processes can ask the other one, which takes its statements over at the same time."""
    return numbered(seed, one_way=True)


def numbered_coalescing(seed: int) -> Plan:
    """Documents of several statements are refused in one command, in a session that bucket writes use as well."""
    return numbered(seed, coalesced_share=0.7, linger_seconds=0.02)


def numbered_and_lossy(seed: int) -> Plan:
    """Outcomes are unknown to the process that has sent a write, and the write may still be on its way."""
    faults = Faults(stall=0, failed_read=0, late=0.05, waits=0.1)
    return replace(numbered(seed, one_way=seed % 2 == 1), faults=faults)


def numbered_and_loyal(seed: int) -> Plan:
    """What is known to have begun behind fences is not looked up.

    Messages of clients are late, and some clients go on with other processes.
    """
    drawn = numbered(seed, one_way=seed % 4 == 3, coalesced_share=0.3 * (seed % 2), linger_seconds=0.02)
    return replace(drawn, loyalty=0.8, inserts_each=50)


def numbered_and_restarted(seed: int) -> Plan:
    """Fences keep out what killed processes have sent."""
    return replace(numbered(seed), restarts=True, restart_pauses_seconds=(0.5, 3, 10))


FENCED: dict[str, tuple[Callable[[int], Plan], int]] = {
    "cut": (numbered, 3),
    "cut_one_way": (numbered_and_cut_one_way, 3),
    "coalesced": (numbered_coalescing, 3),
    "lossy": (numbered_and_lossy, 2),
    "loyal": (numbered_and_loyal, 2),
    "restarted": (numbered_and_restarted, 3),
}
"""By a name for ``-k``: how the processes write and what happens to them, and how many seeds show enough of it."""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fenced", FENCED)
def test_numbered_statements_are_executed_once_behind_fences(fenced: str, scale: float) -> None:
    """Processes that cannot ask one another take over from one another."""
    drawn, seeds = FENCED[fenced]
    worlds = list(worlds_of(seeds, scale, f"fences[{fenced}]", drawn))
    nodes = [node for world in worlds if world.network is not None for node in world.network.nodes.values()]
    assert ONE_SEED or sum(world.server.sessions.kept_out for world in worlds) > 5
    assert ONE_SEED or fenced != "loyal" or sum(node.ruled_out for node in nodes) > 10
