"""The catalog, committer, outcomes, reopening and statement record under seeded chance (W60-W72, W102, W125-W128).

Run one seed again with the command that a failure prints.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.replaying import replayable
from tests.simulation.server import Faults
from tests.simulation.world import Plan, World

SEEDS = 9
FIRST_SEED = int(os.environ.get("TSPROXY_SIMULATION_SEED", "0"))
ONE_SEED = "TSPROXY_SIMULATION_SEED" in os.environ


def simulate(seed: int, plan: Plan | None, test: str) -> int:
    with replayable(seed, "test_catalog", test):
        return World(seed, plan).run()


def seeds(scale: float, count: int) -> range:
    return range(FIRST_SEED, FIRST_SEED + (1 if ONE_SEED else max(1, int(count * scale))))


@pytest.mark.timeout(3600)
def test_everything_at_once(scale: float) -> None:
    """Writers of all kinds, a lossy network, meddlers and restarts: nothing lost, nothing doubled, all answered."""
    steps = sum(simulate(seed, None, "everything") for seed in seeds(scale, SEEDS))
    assert ONE_SEED or steps > 30_000


@pytest.mark.timeout(3600)
def test_retries_reach_a_process_that_was_started_anew(scale: float) -> None:
    """What a killed process had written is not written again for the same statement (W102)."""
    for seed in seeds(scale, SEEDS // 3):
        plan = Plan(
            meddling=False,
            faults=Faults.none(),
            restart_pauses_seconds=(0.05, 0.2, 1),
            retries_after_restart=True,
        )
        simulate(seed, plan, "anew")
