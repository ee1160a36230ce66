"""The ways on after the primary was lost."""

from __future__ import annotations

from proxy.request.attempt import Primary
from tests.support.failover_world import World


async def test_error_of_a_server_that_is_primary_still_is_the_clients() -> None:
    world = World(has_left=False).connected(bound=False)
    assert await world.way() is Primary.STAYS
    assert world.asked == ["a:1"]


async def test_client_without_a_connection_lost_none() -> None:
    world = World()
    assert await world.way() is Primary.STAYS
    assert world.asked == []


async def test_command_of_a_client_without_a_login_goes_again() -> None:
    world = World().connected(bound=False)
    assert await world.way() is Primary.MOVED
    assert world.waited == 0


async def test_client_with_a_login_comes_anew_when_there_is_a_primary() -> None:
    world = World().connected(bound=True)
    assert await world.way() is Primary.MOVED_FROM_LOGIN
    assert world.waited == 1


async def test_login_at_a_server_that_is_primary_again_still_counts() -> None:
    world = World(comes_back=True).connected(bound=True)
    assert await world.way() is Primary.MOVED
