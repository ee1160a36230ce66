"""Proxies that ask one another, under seeded chance: each statement is stored once, wherever it is sent (W102)."""

from __future__ import annotations

import os
import random

import pytest

from tests.simulation.server import Faults
from tests.simulation.world import Plan, World

SEEDS = 3
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
        try:
            World(seed, plan(seed)).run()
        except BaseException as error:
            command = ".venv/bin/python -m pytest tests/simulation/test_linked.py"
            error.add_note(f"replay: TSPROXY_SIMULATION_SEED={seed} {command}")
            raise
