"""Pools beside that of the commits."""

from __future__ import annotations

import pytest

from proxy.backend.service import ServicePool
from proxy.backend.service_connection import NotSent
from proxy.backend.side_pools import SEARCHES_AT_ONCE, SEARCHES_OF_ONE, SidePools
from proxy.request.step_places import StepPlaces


async def test_each_is_another_pool_to_the_same_server() -> None:
    asked = []

    async def primary(timeout_seconds: float) -> tuple[str, int]:
        asked.append(timeout_seconds)
        raise NotSent("nobody is there")

    commits = ServicePool(primary, None, None, 1.0)
    side = SidePools(commits)
    pools = (commits, side.steps, side.searches, side.questions, side.fences)
    assert len(set(map(id, pools))) == 5
    for pool in pools:
        with pytest.raises(NotSent):
            await pool.request(b"", 0.0)
    assert len(asked) == 5
    side.close()


def test_one_database_has_not_all_places_of_searches() -> None:
    assert isinstance(SidePools(ServicePool(_nowhere, None, None, 1.0)).search_places, StepPlaces)
    assert 0 < SEARCHES_OF_ONE < SEARCHES_AT_ONCE


async def _nowhere(timeout_seconds: float) -> tuple[str, int]:
    raise NotSent("nobody is there")
