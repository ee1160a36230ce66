"""The numbers of the status page of several workers."""

from __future__ import annotations

from dataclasses import replace

import bson
from prometheus_client import CollectorRegistry

from proxy.observe.metrics import Metrics
from proxy.observe.readings import NO_COUNTS, NO_GAUGES, Reading, read
from proxy.process.workers.summed_readings import NOTHING, document_of, reading_from, sum_of, without_gauges


def reading(inserts: int) -> Reading:
    metrics = Metrics(CollectorRegistry())
    metrics.is_ready = lambda: True
    for _ in range(inserts):
        metrics.requests("insert", "ingest").done(0.004, 13)
        metrics.connections.accept()
    return read(metrics, 5.0)


def test_names_are_those_of_a_reading() -> None:
    assert reading(1).counts.keys() == NO_COUNTS.keys()
    assert reading(1).gauges.keys() == NO_GAUGES.keys()


def test_reading_arrives_as_it_was() -> None:
    assert reading_from(bson.decode(bson.encode(document_of(reading(2))))) == reading(2)


def test_sum() -> None:
    assert sum_of([reading(1), reading(2)], 5.0) == reading(3)
    assert not sum_of([reading(1), replace(reading(1), is_ready=False)], 5.0).is_ready
    assert sum_of([], 0.0) == NOTHING


def test_of_a_worker_that_has_ended_only_counts_stay() -> None:
    total = sum_of([without_gauges(reading(2)), reading(1)], 5.0)
    assert (total.counts["requests"], total.gauges["connections"], total.is_ready) == (3, 1, True)
