"""All kinds of isolation with all ways of writing, and long times without a link.

``TSPROXY_TEST_SCALE`` is the number of rounds.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.isolated import (
    KINDS,
    WAYS,
    back_and_forth,
    delivered_late,
    executed_by_nobody_else,
    executed_during_a_standstill,
    executed_meanwhile,
    parted_under_load,
    parted_with_the_same_statements,
)
from tests.support.isolation import Isolation
from tests.support.mongod import MongodProcess

ROUNDS = int(os.environ.get("TSPROXY_TEST_SCALE", "1"))
SEED = int(os.environ.get("TSPROXY_TEST_SEED", "1"))
LOAD_SECONDS = 10.0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(90 * ROUNDS)
def test_a_proxy_is_isolated(backend: MongodProcess, tmp_path: Path, database: str, way: str, kind: str) -> None:
    """Again and again, while both remember what came before."""
    is_silent, patience_seconds = KINDS[kind]
    with Isolation(backend, tmp_path, database, WAYS[way], patience_seconds=patience_seconds) as pair:
        for _ in range(ROUNDS):
            executed_meanwhile(pair, is_silent=is_silent)
            executed_by_nobody_else(pair, is_silent=is_silent)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("happens", [executed_during_a_standstill, delivered_late])
@pytest.mark.timeout(90 * ROUNDS)
def test_a_proxy_is_late(
    backend: MongodProcess, tmp_path: Path, database: str, way: str, happens: Callable[[Isolation], None]
) -> None:
    """It stands still, or its network does."""
    with Isolation(backend, tmp_path, database, WAYS[way]) as pair:
        for _ in range(ROUNDS):
            happens(pair)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_one_way", [False, True])
@pytest.mark.timeout(90 * ROUNDS)
def test_proxies_are_parted(backend: MongodProcess, tmp_path: Path, database: str, way: str, is_one_way: bool) -> None:
    with Isolation(backend, tmp_path, database, WAYS[way]) as pair:
        for number in range(ROUNDS):
            parted_under_load(pair, LOAD_SECONDS, random.Random(SEED + number), is_one_way=is_one_way)
            parted_with_the_same_statements(pair, is_one_way=is_one_way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_proxies_never_reach_one_another(backend: MongodProcess, tmp_path: Path, database: str, way: str) -> None:
    with Isolation(backend, tmp_path, database, WAYS[way], are_linked=False) as pair:
        back_and_forth(pair, 5 * ROUNDS)
