"""How much of the backend's cache open buckets may fill (W51)."""

from __future__ import annotations

import asyncio

import pytest
from bson import encode

from catalog.errors import CommandError
from proxy.backend.server_cache import cache_share_bytes
from proxy.backend.service import ServicePool
from proxy.backend.service_auth import introducing
from tests.support.mongod import MongodProcess


async def test_w51_half_of_the_cache_of_the_server(mongod: MongodProcess) -> None:
    async def primary(_: float) -> tuple[str, int]:
        return "127.0.0.1", mongod.port

    pool = ServicePool(primary, introducing("test", lambda _: None, None), None, 5.0)
    try:
        found = await cache_share_bytes(pool.request, asyncio.get_running_loop().time() + 10)
    finally:
        pool.close()
    status = mongod.shared_client.admin.command("serverStatus")
    assert found * 2 == status["wiredTiger"]["cache"]["maximum bytes configured"] == 1 << 29


@pytest.mark.parametrize("reply", [CommandError(13, "not authorized"), {"ok": 1.0}, {"ok": 1.0, "wiredTiger": {}}])
async def test_w51_without_a_limit_where_the_size_is_unknown(reply: CommandError | dict[str, object]) -> None:
    """A refusal, or a mongos, which has no cache."""

    async def request(body: bytes, deadline_seconds: float) -> bytes:
        if isinstance(reply, CommandError):
            raise reply
        return encode(reply)

    assert await cache_share_bytes(request, 0.0) == 0
