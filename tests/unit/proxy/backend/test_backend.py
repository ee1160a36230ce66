"""The proxy's account at a real server; replica sets: tests/topology, roles: tests/security."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from dataclasses import replace

import bson
import pytest
from bson.timestamp import Timestamp

from catalog.commit.restart_dedup import NOTHING_UPDATE
from catalog.errors import BackendUnavailable
from catalog.kernel import parse_measurement
from catalog.namespaces import Namespace, VirtualCollection
from catalog.ports import Applied, WriteConcern
from proxy.backend.backend import Backend
from proxy.observe.tasks import TaskSet
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port


async def connected(uri: str, tasks: TaskSet) -> Backend:
    return await Backend.connect(
        uri,
        server_selection_timeout_seconds=10.0,
        connect_timeout_seconds=10.0,
        refresh_seconds=60.0,
        spawn=tasks.spawn,
    )


@pytest.fixture
async def backend(mongod: MongodProcess) -> AsyncIterator[Backend]:
    errors: list[BaseException] = []
    tasks = TaskSet(errors.append)
    one = await connected(mongod.uri, tasks)
    yield one
    await tasks.close()
    await one.close()
    assert errors == []


async def test_the_backend_is_probed(backend: Backend, mongod: MongodProcess) -> None:
    hello = mongod.shared_client.admin.command("hello")
    assert backend.hello["maxWireVersion"] == hello["maxWireVersion"]
    assert (backend.profile.is_replica_set, backend.waits, backend.topology, backend.tls) == (False, None, None, None)
    assert await backend.primary_address() == (LOOPBACK, mongod.port)
    assert await backend.health(10.0) is None
    assert not backend.access.enforced
    assert await backend.may_on_cluster("inprog")
    assert await backend.missing_rights() == []


async def test_commits_do_not_wait_for_searches_nor_for_questions(
    backend: Backend, mongod: MongodProcess, db_name: str
) -> None:
    """However many of them the backend executes slowly; and other databases have places for theirs."""
    mongod.shared_client[db_name].create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    x = await backend.registry.resolve(Namespace(db_name, "x"))
    assert isinstance(x, VirtualCollection)
    others = [replace(x, namespace=Namespace(f"{db_name}_{number}", "x")) for number in range(20)]
    row = parse_measurement(bson.encode({"t": dt.datetime.now(dt.UTC), "m": 1, "_id": 1}), b"t", b"m")
    store, now = backend.bucket_store(1000, lambda: True, None), asyncio.get_running_loop().time
    slow = {
        "failCommands": ["aggregate"],
        "blockConnection": True,
        "blockTimeMS": 1_000,
        "appName": backend.others.own_name,
    }
    fail_point = {"configureFailPoint": "failCommand", "data": slow}
    mongod.shared_client.admin.command({**fail_point, "mode": "alwaysOn"})
    try:
        tasks = [asyncio.create_task(store.stored_rows(each, [row], now() + 30)) for each in (x,) * 20]
        tasks += [asyncio.create_task(store.stored_rows(each, [row], now() + 30)) for each in others]
        questions = [asyncio.create_task(backend.others.read(db_name)) for _ in range(20)]
        await asyncio.sleep(0.1)
        begun = now()
        assert isinstance(await store.update(x, [NOTHING_UPDATE], WriteConcern(), now() + 30), Applied)
        assert now() - begun < 0.5
    finally:
        mongod.shared_client.admin.command({**fail_point, "mode": "off"})
    await asyncio.gather(*tasks, *questions)


async def test_a_command_by_a_service_connection(backend: Backend, mongod: MongodProcess, db_name: str) -> None:
    mongod.shared_client[db_name].c.insert_one({"a": 1})
    assert bson.decode(await backend.run_raw(db_name, {"count": "c"}))["n"] == 1
    assert bson.decode(await backend.run_raw(db_name, {"nonsense": 1}))["code"] == 59


async def test_collections_are_found(backend: Backend, mongod: MongodProcess, db_name: str) -> None:
    mongod.shared_client[db_name].create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    found = await backend.registry.resolve_anew(Namespace(db_name, "x"))
    assert found is not None
    assert (found.options.time_field, found.options.meta_field, found.extended_range) == ("t", "m", False)
    assert await backend.registry.resolve_anew(Namespace(db_name, "y")) is None


async def test_cluster_times_are_passed_on(backend: Backend) -> None:
    time = {"clusterTime": Timestamp(5, 1)}
    backend.pool.family.times.hear({"$clusterTime": time, "ok": 1.0})
    assert backend.hello["$clusterTime"] == time
    assert backend.hello["ok"] == 1.0


async def test_a_backend_that_is_not_there() -> None:
    tasks = TaskSet(lambda error: None)
    with pytest.raises(BackendUnavailable):
        await Backend.connect(
            f"mongodb://{LOOPBACK}:{free_port()}",
            server_selection_timeout_seconds=0.2,
            connect_timeout_seconds=0.2,
            refresh_seconds=60.0,
            spawn=tasks.spawn,
        )
    await tasks.close()
