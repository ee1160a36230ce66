"""A proxy that loses the backend and the other proxies, and goes on later, stores nothing a second time (W102).

``long_isolated_proxy`` has all kinds of isolation with all ways of writing.
"""

from __future__ import annotations

import random
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

LOAD_SECONDS = 5.0


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        ("in parts", "cut"),
        ("in place", "silent"),
        ("native", "impatient"),
    ],
)
def test_what_another_proxy_has_executed_meanwhile(
    backend: MongodProcess, tmp_path: Path, database: str, way: str, kind: str
) -> None:
    is_silent, patience_seconds = KINDS[kind]
    with Isolation(backend, tmp_path, database, WAYS[way], patience_seconds=patience_seconds) as pair:
        executed_meanwhile(pair, is_silent=is_silent)


@pytest.mark.parametrize("way", ["in parts"])
def test_what_the_network_delivers_late(backend: MongodProcess, tmp_path: Path, database: str, way: str) -> None:
    """After another proxy has executed it: the backend refuses it."""
    with Isolation(backend, tmp_path, database, WAYS[way]) as pair:
        delivered_late(pair)


@pytest.mark.parametrize(("way", "kind"), [("in parts", "impatient"), ("native", "cut")])
def test_what_nobody_else_has_executed(
    backend: MongodProcess, tmp_path: Path, database: str, way: str, kind: str
) -> None:
    is_silent, patience_seconds = KINDS[kind]
    with Isolation(backend, tmp_path, database, WAYS[way], patience_seconds=patience_seconds) as pair:
        executed_by_nobody_else(pair, is_silent=is_silent)


@pytest.mark.parametrize("way", ["native"])
def test_what_was_executed_during_a_standstill(backend: MongodProcess, tmp_path: Path, database: str, way: str) -> None:
    with Isolation(backend, tmp_path, database, WAYS[way]) as pair:
        executed_during_a_standstill(pair)


@pytest.mark.parametrize(("way", "is_one_way"), [("in parts", True)])
def test_proxies_that_lose_one_another_under_load(
    backend: MongodProcess, tmp_path: Path, database: str, way: str, is_one_way: bool
) -> None:
    with Isolation(backend, tmp_path, database, WAYS[way]) as pair:
        parted_under_load(pair, LOAD_SECONDS, random.Random(1), is_one_way=is_one_way)


@pytest.mark.parametrize(("way", "is_one_way"), [("in parts", False), ("native", True)])
def test_proxies_that_lose_one_another_and_get_the_same(
    backend: MongodProcess, tmp_path: Path, database: str, way: str, is_one_way: bool
) -> None:
    """Whoever has set up fences last may write, once it has looked up what the other has stored."""
    with Isolation(backend, tmp_path, database, WAYS[way]) as pair:
        parted_with_the_same_statements(pair, is_one_way=is_one_way)


@pytest.mark.parametrize("way", ["in place", "native"])
def test_proxies_that_never_reached_one_another(
    backend: MongodProcess, tmp_path: Path, database: str, way: str
) -> None:
    with Isolation(backend, tmp_path, database, WAYS[way], are_linked=False) as pair:
        back_and_forth(pair)
