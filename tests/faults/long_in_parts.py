"""Further faults while buckets grow in parts; ``make test-faults`` runs them.

All is read through the proxy, which may still join parts: a read that bypasses it and begins just before a join may see
a row twice.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.fleet import Fleet, start_again
from tests.support.fleet_in_parts import IN_PARTS, SOME
from tests.support.link import Link
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess


async def test_connections_are_cut_during_joins(either: MongodProcess, tmp_path: Path, name: str) -> None:
    with Link(either.port) as link:
        proxy = ProxyProcess(tmp_path / "proxy", link.uri, flags=IN_PARTS).start()
        try:
            fleet = Fleet(proxy.uri, name, erasers=1, movers=1)

            async def events() -> None:
                await fleet.until(SOME)
                for _ in range(8):
                    link.cut_before_replies(2, least_bytes=100)
                    await fleet.until(SOME // 9)
                    link.cut_all()
                    await fleet.until(SOME // 9)

            await fleet.run_during(events)
            with proxy.client() as client:
                fleet.check(client)
        finally:
            proxy.stop()


async def test_primary_steps_down_during_joins(backend: MongodProcess, tmp_path: Path, database: str) -> None:
    proxy = ProxyProcess(tmp_path / "proxy", backend.uri, flags=IN_PARTS).start()
    try:
        fleet = Fleet(proxy.uri, database, erasers=1, movers=1)

        async def events() -> None:
            for _ in range(2):
                await fleet.until(SOME)
                with backend.client(directConnection=True) as client:
                    await asyncio.to_thread(client.admin.command, {"replSetStepDown": 1, "force": True})
            await fleet.until(SOME // 3)

        await fleet.run_during(events)
        with proxy.client() as client:
            fleet.check(client)
    finally:
        proxy.stop()


async def test_backend_is_killed(either: MongodProcess, parts_proxy: ProxyProcess, name: str) -> None:
    fleet = Fleet(parts_proxy.uri, name, erasers=1, movers=1)

    async def events() -> None:
        await fleet.until(SOME)
        either.kill()
        await start_again(either)
        await fleet.until(SOME // 3)

    await fleet.run_during(events)
    with parts_proxy.client() as client:
        fleet.check(client)
