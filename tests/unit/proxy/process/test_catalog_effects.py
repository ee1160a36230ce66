"""Two processes over a real server: what one of them changes, the other one looks up again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from catalog.namespaces import Namespace, VirtualCollection
from proxy.observe.metrics import Metrics
from proxy.observe.tasks import TaskSet
from proxy.peers.change import Change
from proxy.process.assembly import Assembly, assemble
from proxy.request.router import UNRESOLVED
from proxy.settings.table import Settings
from rewrite.plan import ClearBuckets, DropNamespace, ForgetNamespace
from tests.support.mongod import MongodProcess


class Told:
    """Remembers what others are told."""

    def __init__(self) -> None:
        self.heard: list[Namespace] = []
        self.waits = 0

    def tell(self, namespace: Namespace) -> None:
        self.heard.append(namespace)

    async def told(self) -> None:
        self.waits += 1


@asynccontextmanager
async def assembled(mongod: MongodProcess) -> AsyncIterator[Assembly]:
    errors: list[BaseException] = []
    async with AsyncExitStack() as stack:
        tasks = TaskSet(errors.append)
        stack.push_async_callback(tasks.close)
        settings = Settings(backend=mongod.uri)
        assembly = await assemble(settings, Metrics(CollectorRegistry()), tasks.spawn, errors.append)
        stack.push_async_callback(assembly.close, 10.0)
        yield assembly
    assert errors == []


@pytest.fixture
def x(mongod: MongodProcess, db_name: str) -> Namespace:
    native: Any = mongod.shared_client[db_name]
    native.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    return Namespace(db_name, "x")


async def test_others_are_told_of_definitions_and_not_of_buckets(mongod: MongodProcess, x: Namespace) -> None:
    async with assembled(mongod) as assembly:
        effects, told = assembly.effects, Told()
        await effects.announce((ForgetNamespace(x),))
        effects.tell(told)  # type: ignore[arg-type]
        database = Namespace(x.database, "")
        await effects.announce((ClearBuckets(x), ForgetNamespace(x.buckets), DropNamespace(database)))
        assert told.heard == [x, database]
        assert told.waits == 1


async def test_what_others_change_is_looked_up_again(mongod: MongodProcess, x: Namespace) -> None:
    async with assembled(mongod) as assembly:
        registry = assembly.backend.registry
        first = await registry.resolve(x)
        assert isinstance(first, VirtualCollection)
        assert not first.extended_range
        assembly.effects.changed_elsewhere(Change(x, is_extended_range=True))
        known = registry.lookup(x)
        assert isinstance(known, VirtualCollection)
        assert known.extended_range
        assembly.effects.changed_elsewhere(Change(x))
        assert registry.lookup(x) is UNRESOLVED
