"""The status page with the components of a real proxy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry

from proxy.observe.http_messages import HttpRequest
from proxy.observe.metrics import Metrics
from proxy.observe.tasks import TaskSet
from proxy.process.assembly import Assembly, assemble
from proxy.process.status_page import StatusPage, serving_of
from proxy.settings.config import Settings, load_settings
from tests.support.mongod import MongodProcess

REQUEST = HttpRequest("/status.json", "", "localhost", "127.0.0.1")


def settings(**flags: str) -> Settings:
    return load_settings({"listen": "127.0.0.1:0", **flags}, {}).settings


@pytest.fixture
async def assembled(mongod: MongodProcess) -> AsyncIterator[tuple[Settings, Metrics, Assembly]]:
    chosen = settings(backend=mongod.uri)
    metrics, tasks = Metrics(CollectorRegistry()), TaskSet(lambda error: None)
    assembly = await assemble(chosen, metrics, tasks.spawn, lambda error: None)
    try:
        yield chosen, metrics, assembly
    finally:
        await assembly.close(10.0)
        await tasks.close()


@pytest.mark.parametrize("flags", [{"status_page": "off"}, {"status_listen": ""}])
async def test_a_page_that_is_off_has_no_paths_and_records_nothing(flags: dict[str, str]) -> None:
    page = StatusPage(settings(**flags), Metrics(CollectorRegistry()), lambda: "")
    assert page.paths == {}
    await asyncio.wait_for(page.run(), 20)


def test_the_page_has_its_files_and_its_document() -> None:
    page = StatusPage(settings(), Metrics(CollectorRegistry()), lambda: "not yet")
    assert {"/", "/page/page.css", "/page/page.js", "/status.json"} <= set(page.paths)
    shown = json.loads(page.paths["/status.json"](REQUEST).body)
    assert (shown["ready"], shown["whyNotReady"]) == (False, "not yet")


async def test_the_backend_is_described(assembled: tuple[Settings, Metrics, Assembly], mongod: MongodProcess) -> None:
    chosen, metrics, assembly = assembled
    page = StatusPage(chosen, metrics, lambda: "")
    serving = serving_of(assembly, chosen, lambda: ("paused", 3))
    page.serves(serving)
    shown = json.loads(page.paths["/status.json"](REQUEST).body)
    backend = shown["backend"]
    assert (backend["kind"], backend["accessControl"], backend["uri"]) == ("standalone", False, mongod.uri)
    assert backend["version"] == ".".join(map(str, assembly.backend.profile.version))
    assert (shown["state"], shown["held"]) == ("paused", 3)
    # Other tests may have proxies at the same server.
    assert shown["otherProxies"] is serving.beside_others() is not None
    assert "3 commands wait" in shown["notes"][0]["text"]


async def test_other_proxies_are_unknown_where_they_are_not_looked_for(mongod: MongodProcess) -> None:
    chosen = settings(backend=mongod.uri, write_strategy="in_place")
    metrics, tasks = Metrics(CollectorRegistry()), TaskSet(lambda error: None)
    assembly = await assemble(chosen, metrics, tasks.spawn, lambda error: None)
    try:
        assert serving_of(assembly, chosen, lambda: ("serving", 0)).beside_others() is None
    finally:
        await assembly.close(10.0)
        await tasks.close()
