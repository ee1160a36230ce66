"""Another primary, and the same one after another election, are noticed."""

from __future__ import annotations

import asyncio

import bson
from bson import ObjectId

from proxy.backend.backend import Backend
from proxy.backend.primary_identity import PrimaryIdentity
from proxy.observe.tasks import TaskSet
from tests.support.mongod import MongodProcess

PROCESS, OTHER = ObjectId(), ObjectId()


def test_another_process_or_another_election_is_noticed() -> None:
    identity, changes = PrimaryIdentity(), []
    identity.on_change = lambda: changes.append(1)
    for process, election, changed in (
        (PROCESS, 1, 0),
        (PROCESS, 1, 0),
        (PROCESS, 2, 1),
        (OTHER, 2, 2),
        (OTHER, 2, 2),
        (PROCESS, 2, 3),
    ):
        identity.greeted({"topologyVersion": {"processId": process, "counter": 1}, "electionId": election})
        assert len(changes) == changed


def test_old_servers_tell_nothing() -> None:
    identity = PrimaryIdentity()
    identity.on_change = lambda: 1 / 0  # type: ignore[assignment, return-value]
    identity.greeted({})
    identity.greeted({"ok": 1.0})


async def test_a_server_tells_new_connections_of_another_election(replica_set: MongodProcess) -> None:
    tasks = TaskSet(lambda error: None)
    backend = await Backend.connect(
        replica_set.uri,
        server_selection_timeout_seconds=10.0,
        connect_timeout_seconds=5.0,
        refresh_seconds=60.0,
        spawn=tasks.spawn,
    )
    changes: list[int] = []
    backend.pool.family.primary.on_change = lambda: changes.append(1)

    async def ask_anew() -> bool:
        backend.pool.forget_primary()
        reply = await backend.pool.request(bson.encode({"hello": 1, "$db": "admin"}), loop.time() + 10)
        return bool(bson.decode(reply)["isWritablePrimary"])

    try:
        loop = asyncio.get_running_loop()
        assert await ask_anew()
        assert changes == []
        with replica_set.client(directConnection=True) as client:
            await asyncio.to_thread(client.admin.command, {"replSetStepDown": 1, "force": True})
        async with asyncio.timeout(30):
            while not await ask_anew():  # noqa: ASYNC110 - until it is elected
                await asyncio.sleep(0.05)
        assert changes
    finally:
        await backend.close()
        await tasks.close()
