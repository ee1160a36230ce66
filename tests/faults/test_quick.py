"""Faults under load: every acknowledged measurement is stored once, every other at most once (W102, W125-W128)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.fleet import Fleet, start_again
from tests.support.fleet_in_parts import FLAGS, PATIENCE_SECONDS
from tests.support.link import Link
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

SOME = 150
"""Measurements acknowledged before and after a fault."""


async def test_backend_is_killed_and_comes_back(backend: MongodProcess, steady: ProxyProcess, database: str) -> None:
    fleet = Fleet(steady.uri, database)

    async def events() -> None:
        await fleet.until(SOME)
        backend.kill()
        await asyncio.sleep(0.3)
        await start_again(backend)
        await fleet.until(SOME)

    await fleet.run_during(events)
    fleet.check(backend.shared_client)
    assert fleet.books.longest_seconds < 4 * PATIENCE_SECONDS


async def test_proxy_is_killed_and_comes_back(backend: MongodProcess, fragile: ProxyProcess, database: str) -> None:
    """A driver's retry of a statement that the killed proxy had written is not written again."""
    fleet = Fleet(fragile.uri, database)

    async def events() -> None:
        for _ in range(2):
            await fleet.until(SOME)
            fragile.kill()
            await start_again(fragile)
        await fleet.until(SOME)

    await fleet.run_during(events)
    fleet.check(backend.shared_client)


@pytest.mark.parametrize("when", ["before requests", "before replies", "at any time"])
async def test_connections_to_the_backend_are_cut(
    backend: MongodProcess, tmp_path: Any, database: str, when: str
) -> None:
    """Nobody but the proxy notices."""
    with Link(backend.port) as link:
        proxy = ProxyProcess(tmp_path / "proxy", link.uri, flags=FLAGS).start()
        try:
            fleet = Fleet(proxy.uri, database)

            async def events() -> None:
                for number in range(1, 9):
                    await fleet.until(SOME // 5)
                    match when:
                        case "before requests":
                            link.cut_before_requests(1, least_bytes=300)
                        case "before replies":
                            link.cut_before_replies(1, least_bytes=300)
                        case _:
                            link.cut_all()
                            continue
                    await eventually(lambda: link.cuts == number)  # noqa: B023  (is awaited here)
                await fleet.until(SOME // 5)

            await fleet.run_during(events)
            fleet.check(backend.shared_client)
            assert not fleet.books.errors
        finally:
            proxy.stop()


async def test_link_that_falls_silent(backend: MongodProcess, tmp_path: Any, database: str) -> None:
    """Writers are answered within bounds though no connection ends, and all goes on afterwards."""
    with Link(backend.port) as link:
        proxy = ProxyProcess(tmp_path / "proxy", link.uri, flags=("--server-selection-timeout-ms", "1500")).start()
        try:
            fleet = Fleet(proxy.uri, database, retryWrites=False)

            async def events() -> None:
                await fleet.until(SOME)
                link.hold()
                await asyncio.sleep(5)
                assert fleet.books.errors
                link.release()
                await fleet.until(SOME)

            await fleet.run_during(events)
            fleet.check(backend.shared_client)
            assert fleet.books.longest_seconds < 10
        finally:
            proxy.stop()


async def test_link_that_comes_and_goes_with_little_patience(
    backend: MongodProcess, tmp_path: Any, database: str
) -> None:
    """Those who gave up searching for the backend do not keep others from finding it."""
    with Link(backend.port) as link:
        proxy = ProxyProcess(tmp_path / "proxy", link.uri, flags=("--server-selection-timeout-ms", "600")).start()
        try:
            fleet = Fleet(proxy.uri, database, retryWrites=False)

            async def events() -> None:
                for _ in range(4):
                    await fleet.until(10)
                    link.hold()
                    link.cut_all()
                    await asyncio.sleep(1.2)
                    link.release()
                    async with asyncio.timeout(4 * PATIENCE_SECONDS):
                        await fleet.until(10)

            await fleet.run_during(events)
            fleet.check(backend.shared_client)
        finally:
            proxy.stop()


async def test_primary_steps_down(backend: MongodProcess, steady: ProxyProcess, database: str) -> None:
    fleet = Fleet(steady.uri, database)

    async def events() -> None:
        await fleet.until(SOME)
        with backend.client(directConnection=True) as client:
            await asyncio.to_thread(client.admin.command, {"replSetStepDown": 1, "force": True})
        await fleet.until(SOME)

    await fleet.run_during(events)
    fleet.check(backend.shared_client)


FAILURES = {
    "connection closed": {"closeConnection": True},
    "interrupted at shutdown": {"errorCode": 11600},
    "not primary any more": {"errorCode": 10107},
    "interrupted": {"errorCode": 11601},
    "slow": {"blockConnection": True, "blockTimeMS": 400},
    "write concern failed": {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}},
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_backend_fails_commands(
    backend: MongodProcess, steady: ProxyProcess, database: str, failure: str
) -> None:
    fleet = Fleet(steady.uri, database)
    fail_point = {
        "configureFailPoint": "failCommand",
        "mode": {"times": 4},
        "data": {
            "failCommands": ["insert", "update"],
            "namespace": f"{database}.system.buckets.c",
            "failInternalCommands": True,
            **FAILURES[failure],
        },
    }

    async def events() -> None:
        await fleet.until(SOME)
        with backend.client(directConnection=True) as client:
            await asyncio.to_thread(client.admin.command, fail_point)
        await fleet.until(SOME)

    await fleet.run_during(events)
    fleet.check(backend.shared_client)
    if failure in {"interrupted", "write concern failed"}:
        assert fleet.books.errors
    else:
        assert not fleet.books.errors
