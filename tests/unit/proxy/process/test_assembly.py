"""What settings become, and the components in front of a real server."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from catalog.namespaces import Namespace
from proxy.observe.metrics import Metrics
from proxy.observe.tasks import TaskSet
from proxy.process.assembly import (
    Assembly,
    LoopClock,
    assemble,
    catalog_stats,
    follow_settings,
)
from proxy.settings.config import Settings, load_settings
from rewrite.plan import ClearBuckets, DropNamespace, ForgetNamespace
from tests.support.catalog_parts import KEY, RememberingWriter, measurement
from tests.support.mongod import MongodProcess


def settings(**flags: str) -> Settings:
    return load_settings(flags, {}).settings


async def test_the_clock_is_the_loops() -> None:
    before = asyncio.get_running_loop().time()
    assert before <= LoopClock().monotonic_seconds() <= asyncio.get_running_loop().time()


async def test_reloaded_settings_reach_every_component(mongod: MongodProcess) -> None:
    metrics, tasks = Metrics(CollectorRegistry()), TaskSet(lambda error: None)
    chosen = settings(backend=mongod.uri, create_as_timeseries="db.* -> timeField=t")
    assembly = await assemble(chosen, metrics, tasks.spawn, lambda error: None)
    try:
        newer = settings(
            roles_refresh_seconds="7",
            namespace_refresh_seconds="8",
            commit_linger_ms="9",
            commit_rounds_in_flight="10",
            compress_after_seconds="11",
            max_pending_measurements="1",
            timeseries_idle_bucket_expiry_memory_usage_threshold="13",
            slow_command_ms="14",
            slow_command_plans="true",
            reopening="false",
        )
        follow_settings(assembly, newer)
        assert assembly.authorisation.refresh_seconds == 7
        assert assembly.backend.registry.refresh_seconds == 8
        assert assembly.ruled is not None
        assert assembly.ruled.refresh_seconds == 8
        options = assembly.committer.options
        assert (options.linger_seconds, options.rounds_in_flight) == (0.009, 10)
        assert assembly.compressing is not None
        assert assembly.compressing.options.inactive_seconds == 11
        assembly.ingest.pending.take(0, 2)
        assert assembly.ingest.pending.is_full
        assembly.ingest.pending.take(0, -2)
        assert assembly.catalog.options.memory_threshold_bytes == 13
        assert assembly.catalog.options.reopening
        assert (assembly.slow.threshold.seconds, assembly.slow.shows_plans) == (0.014, True)
    finally:
        await assembly.close(10.0)
        await tasks.close()


async def staged(assembly: Assembly, namespace: Namespace) -> RememberingWriter:
    """One measurement of an insert, submitted."""
    virtual = await assembly.backend.registry.resolve_anew(namespace)
    assert virtual is not None
    writer = RememberingWriter()
    batch = assembly.catalog.place(assembly.catalog.collection(virtual), measurement(), writer, 0, KEY)
    if batch is not None and batch.claim():
        assembly.committer.submit(batch)
    assembly.committer.kick()
    return writer


async def test_what_is_staged_is_stored_before_the_end(mongod: MongodProcess, db_name: str) -> None:
    """W72: and the effects of commands reach the catalog."""
    native = mongod.shared_client[db_name]
    native.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    errors: list[BaseException] = []
    tasks = TaskSet(errors.append)
    metrics = Metrics(CollectorRegistry())
    assembly = await assemble(settings(backend=mongod.uri), metrics, tasks.spawn, errors.append)
    try:
        x = Namespace(db_name, "x")
        first = await staged(assembly, x)
        while not first.told:  # noqa: ASYNC110 - only the writer knows
            await asyncio.sleep(0.01)
        assert first.codes == {0: None}
        assert catalog_stats(assembly.catalog, x)["numMeasurementsCommitted"] == 1
        assert assembly.catalog.gauges()["numBuckets"] == 1
        assembly.effects(ClearBuckets(x))
        assert assembly.catalog.gauges()["numBuckets"] == 0
        assembly.effects(ForgetNamespace(x))
        assembly.effects(DropNamespace(x))
        assert catalog_stats(assembly.catalog, x)["numMeasurementsCommitted"] == 0
        assert "numBuckets" in catalog_stats(assembly.catalog, None)
        last = await staged(assembly, x)
    finally:
        await assembly.close(10.0)
        await tasks.close()
    assert last.codes == {0: None}
    assert errors == []
    assert native.x.count_documents({}) == 2
