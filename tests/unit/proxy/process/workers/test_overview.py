"""What the supervisor shows of its workers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from proxy.observe.http_messages import HttpRequest, parse
from proxy.observe.metrics import Metrics
from proxy.observe.tasks import TaskSet
from proxy.process.workers.crew import Crew
from proxy.process.workers.member import Member, State
from proxy.process.workers.overview import Overview
from proxy.process.workers.sums import Families
from proxy.settings.table import Settings


async def forward(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return fields


def crew_of(*connections: int) -> Crew:
    tasks = TaskSet(lambda error: None)
    crew = Crew(len(connections), lambda number: {}, forward, lambda: None, tasks)
    for number, count in enumerate(connections):
        registry = CollectorRegistry()
        metrics = Metrics(registry)
        for _ in range(count):
            metrics.connections.accept()
        crew.members[number] = member = Member(number, lambda: None, tasks)
        member.families = Families(generate_latest(registry).decode())
        member.state = State(trouble="" if count else "the backend does not answer")
    return crew


def request(path: str) -> HttpRequest:
    parsed = parse(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), "127.0.0.1")
    assert parsed is not None
    return parsed[1]


async def test_each_worker_is_shown() -> None:
    crew = crew_of(2, 0)
    overview = Overview(Settings(), crew, lambda: 7)
    values = overview.registry.get_sample_value
    assert values("tsproxy_workers") == 2
    assert values("tsproxy_workers_ready") == 1
    assert values("tsproxy_worker_restarts_total") == 0
    assert values("tsproxy_worker_connections_open", {"worker": "0"}) == 2
    assert values("tsproxy_worker_connections_open", {"worker": "1"}) == 0
    assert values("tsproxy_embedded_restarts_total") == 7
    assert (values("process_resident_memory_bytes") or 0) > 1e6
    crew.close()


async def test_page_has_numbers_only() -> None:
    crew = crew_of(1)
    overview = Overview(Settings(status_page="names"), crew, lambda: 0)
    document = json.loads(overview.paths["/status.json"](request("/status.json")).body)
    assert document["shows"] == "numbers"
    assert document["whyNotReady"] == "the worker has ended and is replaced"
    assert Overview(Settings(status_page="off"), crew, lambda: 0).paths == {}
    crew.close()
