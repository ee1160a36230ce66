"""The document of the status page: who sees what, and how large it gets."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from catalog.buckets.open_bucket import CollectionBuckets
from catalog.buckets.stats import Counters
from catalog.namespaces import Namespace, TimeseriesOptions, VirtualCollection
from proxy.observe.busiest import LOOK_SECONDS, MOST_SHOWN, BusiestCollections
from proxy.observe.error_classes import ErrorClass
from proxy.observe.history import MOST_POINTS, History
from proxy.observe.http_messages import HttpRequest
from proxy.observe.metrics import Metrics
from proxy.observe.readings import read
from proxy.observe.slow_ring import SlowEntry, SlowRing
from proxy.observe.status_document import (
    LONGEST_REASON,
    MOST_ERRORS,
    MOST_SLOW,
    Process,
    Serving,
    StatusDocument,
    StatusPageMode,
    names_are_shown,
)

HERE = HttpRequest("/status.json", "", "127.0.0.1:9216", "127.0.0.1")
MOST_BYTES = 400_000


class World:
    """A document over plain numbers."""

    def __init__(self, mode: StatusPageMode = "names") -> None:
        self.metrics = Metrics(CollectorRegistry(), {"max_connections": 10})
        self.now_seconds = 0.0
        self.history = History(lambda: read(self.metrics, self.now_seconds), lambda: int(self.now_seconds))
        self.trouble = ""
        self.enforced = False
        self.collections: list[CollectionBuckets] = []
        self.ring = SlowRing()
        self.document = StatusDocument(
            Process("1.2.3", "abc", "2024-05-01T00:00:00+00:00"),
            mode,
            self.metrics,
            self.history,
            lambda: self.trouble,
        )

    def serve(self) -> None:
        """The backend was reached."""
        self.document.serving = Serving(
            backend=lambda: {"version": "6.0.5"},
            names=lambda: {"uri": "mongodb://secret.example/"},
            traffic=lambda: ("serving", 0),
            beside_others=lambda: None,
            has_access_control=lambda: self.enforced,
            slow=self.ring,
            busiest=BusiestCollections(lambda: self.collections, lambda: self.now_seconds),
        )

    def sample(self) -> None:
        self.now_seconds += 2.0
        self.history.sample()

    def encoded(self, request: HttpRequest = HERE) -> bytes:
        return self.document.answer(request).body

    def shown(self, request: HttpRequest = HERE) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.encoded(request))
        return document


def buckets(name: str) -> CollectionBuckets:
    virtual = VirtualCollection(Namespace("d" * 60, name), TimeseriesOptions("t", None, "seconds", 3_600, 60))
    return CollectionBuckets(virtual, Counters(numMeasurementsCommitted=5, numCommits=1))


def test_while_the_backend_is_not_reached_the_document_says_why() -> None:
    world = World()
    world.trouble = "the proxy is starting " + "x" * 5_000
    shown = world.shown()
    assert (shown["ready"], shown["state"], shown["backend"]) == (False, "starting", {"answers": False})
    assert len(shown["whyNotReady"]) == LONGEST_REASON + 1
    assert "collections" not in shown
    assert "slow" not in shown


def test_numbers_are_those_of_the_last_reading() -> None:
    world = World()
    world.serve()
    for _ in range(20):
        world.metrics.requests("find", "translate").done(0.003)
    world.metrics.requests("find", "translate").done(0.1, 50)
    world.sample()
    shown = world.shown()
    assert (shown["schema"], shown["tsproxy"], shown["instance"]) == (1, "1.2.3", "abc")
    assert shown["totals"]["requests"] == shown["now"]["counts"]["requests"] == 21
    assert shown["errors"] == [{"command": "find", "way": "translate", "class": "interrupted", "count": 1}]
    assert shown["now"]["ways"]["translate"][0] == 21
    assert [point["number"] for point in shown["points"]] == [1]
    assert world.shown(HttpRequest("/status.json", "after=1", "127.0.0.1", "127.0.0.1"))["points"] == []
    assert shown["limits"] == {"max_connections": 10}


@pytest.mark.parametrize(
    ("mode", "peer", "host", "enforced", "expected"),
    [
        ("off", "127.0.0.1", "127.0.0.1", False, False),
        ("numbers", "127.0.0.1", "127.0.0.1", False, False),
        ("auto", "127.0.0.1", "127.0.0.1:9216", False, True),
        ("auto", "::1", "localhost:9216", False, True),
        ("auto", "127.0.0.1", "127.0.0.1:9216", True, False),
        ("auto", "192.0.2.7", "127.0.0.1:9216", False, False),
        ("auto", "127.0.0.1", "evil.example:9216", False, False),
        ("auto", "127.0.0.1", "", False, False),
        ("names", "192.0.2.7", "status.example", True, True),
    ],
)
def test_who_sees_names(mode: StatusPageMode, peer: str, host: str, enforced: bool, expected: bool) -> None:
    assert names_are_shown(mode, HttpRequest("/", "", host, peer), has_access_control=enforced) is expected


async def test_without_names_there_is_no_more_than_in_the_metrics() -> None:
    world = World("numbers")
    world.serve()
    world.collections = [buckets("secretcollection")]
    world.ring.add(SlowEntry("2024-05-01T00:00:00.000+00:00", "slow command", {"user": "secretuser"}))
    world.now_seconds += LOOK_SECONDS
    await world.document.look()
    assert b"secret" not in world.encoded()
    assert world.shown()["shows"] == "numbers"
    assert world.document.serving is not None
    assert world.document.serving.busiest.total == 0, "what nobody sees is not looked for"


async def test_names_of_collections_and_slow_commands() -> None:
    world = World()
    world.serve()
    world.metrics.slow.threshold_seconds = lambda: 0.1
    world.collections = [buckets("<img src=x onerror=alert(1)>")]
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    world.ring.add(SlowEntry("2024-05-01T00:00:00.000+00:00", "slow command", {"namespace": "long.ago"}))
    world.ring.add(SlowEntry(at, "slow command", {"namespace": "d.c", "duration_ms": 7.5}))
    world.ring.add(SlowEntry(at, "slow command", {"namespace": "d.c", "duration_ms": 2.5}))
    world.now_seconds += LOOK_SECONDS
    await world.document.look()
    shown = world.shown()
    (busy,) = shown["collections"]["busiest"]
    assert busy["collection"].endswith(".<img src=x onerror=alert(1)>")
    assert busy["measurementsPerSecond"] == 0.5
    assert shown["backend"]["uri"] == "mongodb://secret.example/"
    slowest = {"at": at, "event": "slow command", "namespace": "d.c", "duration_ms": 7.5}
    assert shown["slow"] == {
        "thresholdMs": 100.0,
        "commands": [{"count": 2, "sumMs": 10.0, "latestAt": at, "slowest": slowest}],
    }


def test_without_a_threshold_json_stays_valid() -> None:
    world = World()
    world.serve()
    world.metrics.slow.threshold_seconds = lambda: math.inf
    assert world.shown()["slow"]["thresholdMs"] is None


async def test_the_size_is_bounded_whatever_clients_do() -> None:
    """Thousands of collections with long names, full histories, long texts in every slow command."""
    world = World()
    world.serve()
    world.trouble = "\n" * 10_000
    world.collections = [buckets(f"{number}" + "\N{SNOWMAN}" * 60) for number in range(12_000)]
    for command in range(60):
        for way in ("relay", "translate", "ingest", "answer", "admin", "refuse"):
            meter = world.metrics.requests(f"command{command}", way)
            for each in ErrorClass:
                meter.errors[each] = 10**9
    texts = {f"value_{number}": "\N{SNOWMAN}" * 600 for number in range(12)}
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    for number in range(500):
        values = {**texts, "rewritten": ["{" * 600] * 20, "shape": f"{number}"}
        world.ring.add(SlowEntry(at, "slow command", values))
    for _ in range(2 * MOST_POINTS):
        for way in ("relay", "translate", "ingest", "answer", "admin", "refuse"):
            world.metrics.requests("insert", way).done(0.0123456)
        world.sample()
    for meter in world.metrics.request_numbers.meters.values():
        for each in ErrorClass:
            meter.errors[each] += 10**9
    world.sample()
    world.now_seconds += LOOK_SECONDS
    await world.document.look()
    shown = world.shown()
    assert len(shown["collections"]["busiest"]) == MOST_SHOWN
    assert shown["collections"]["total"] == 12_000 > shown["collections"]["examined"]
    assert len(shown["slow"]["commands"]) == MOST_SLOW
    assert len(shown["errors"]) == MOST_ERRORS
    assert len(shown["points"]) == MOST_POINTS
    assert len(world.encoded()) < MOST_BYTES
