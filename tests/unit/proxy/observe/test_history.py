"""Points are differences of readings; their number and size are bounded."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from proxy.observe import history as module
from proxy.observe.history import MOST_POINTS, SAMPLE_SECONDS, History, wall_ms
from proxy.observe.metrics import Metrics
from proxy.observe.readings import Reading, read


class World:
    """Metrics with a clock that the test turns."""

    def __init__(self) -> None:
        self.metrics = Metrics(CollectorRegistry())
        self.now_seconds = 100.0
        self.history = History(lambda: read(self.metrics, self.now_seconds), lambda: round(self.now_seconds * 1000))

    def sample(self, seconds: float = SAMPLE_SECONDS) -> dict[str, Any]:
        """The point after this time."""
        self.now_seconds += seconds
        self.history.sample()
        point: dict[str, Any] = json.loads(bytes(self.history.after(0)[-1]))
        return point


def test_a_point_has_what_happened_since_the_one_before() -> None:
    world = World()
    meter = world.metrics.requests("insert", "ingest")
    meter.done(0.001)
    assert world.sample()["counts"] == {"requests": 1}
    for _ in range(99):
        meter.done(0.002)
    meter.done(3.0, 112)
    point = world.sample(2.5)
    assert (point["number"], point["at"], point["seconds"], point["ready"]) == (2, 104_500, 2.5, False)
    assert point["counts"] == {"requests": 100, "errors": 1}
    requests, p50, p95, p99 = point["ways"]["ingest"]
    assert requests == 100
    # Between the bounds of 1 and 2.5 milliseconds.
    assert 1 < p50 < p95 < p99 <= 2.5
    assert world.sample()["ways"] == {}


def test_values_above_all_bounds_count_as_the_last_bound() -> None:
    world = World()
    world.metrics.requests("getMore", "relay").done(500.0)
    assert world.sample()["ways"]["relay"] == [1, 30_000.0, 30_000.0, 30_000.0]


def test_only_points_after_a_number_are_asked_for() -> None:
    world = World()
    for _ in range(3):
        world.sample()
    numbers = [json.loads(bytes(point))["number"] for point in world.history.after(1)]
    assert (numbers, world.history.after(3)) == ([2, 3], [])
    # The number of a process that was there before: everything is new.
    assert len(world.history.after(4)) == 3


def test_the_history_ends_after_five_minutes() -> None:
    world = World()
    for _ in range(MOST_POINTS + 50):
        world.metrics.requests("insert", "ingest").done(0.001)
        world.sample()
    assert len(world.history.after(0)) == MOST_POINTS
    everything = world.history.last(MOST_POINTS * SAMPLE_SECONDS)
    assert (everything.seconds, everything.counts["requests"]) == (300.0, MOST_POINTS)
    assert sum(everything.latencies["ingest"]) == MOST_POINTS


@pytest.mark.parametrize("late_seconds", [0.0, 0.01])
def test_the_last_ten_seconds_are_five_points(late_seconds: float) -> None:
    world = World()
    for count in range(8):
        for _ in range(10**count % 97):
            world.metrics.requests("find", "relay").done(0.001, 59)
        world.sample(SAMPLE_SECONDS + late_seconds)
    span = world.history.last(10.0)
    assert span.seconds == pytest.approx(5 * (SAMPLE_SECONDS + late_seconds))
    assert span.errors == {("find", "relay", "invalid_command"): sum(10**count % 97 for count in range(3, 8))}


def test_nothing_happened_before_the_first_point() -> None:
    assert World().history.last(10.0).seconds == 0


def test_what_falls_with_a_dropped_collection_is_no_increase() -> None:
    world = World()
    reading = replace(world.history.latest, counts={"measurements": 9})
    fallen = replace(reading, counts={"measurements": 4})
    assert module.between(reading, fallen).counts == {}


def test_a_point_is_small_whatever_happens() -> None:
    """Names in it are those of the program."""
    world = World()
    for way in ("relay", "translate", "ingest", "answer", "admin", "refuse"):
        for _ in range(1000):
            world.metrics.requests("insert", way).done(0.123456, 11000)
    world.sample()
    assert len(bytes(world.history.after(0)[0])) < 2_000


async def test_readings_are_taken_until_the_task_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE_SECONDS", 0.001)
    taken: list[Reading] = []
    looked = asyncio.Event()

    async def look() -> None:
        if len(taken) > 3:
            looked.set()

    def reading() -> Reading:
        taken.append(read(Metrics(CollectorRegistry()), float(len(taken))))
        return taken[-1]

    history = History(reading, wall_ms)
    running = asyncio.create_task(history.run(look))
    await asyncio.wait_for(looked.wait(), 10)
    running.cancel()
    assert len(history.after(0)) >= 3
