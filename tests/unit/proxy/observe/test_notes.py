"""What is mentioned first, and what is not worth it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from proxy.observe.history import Span, total
from proxy.observe.metrics import Metrics
from proxy.observe.notes import MANY_PARTS, Watched, notes_of
from proxy.observe.readings import read

LIMITS = {"max_connections": 100, "max_pending_measurements": 1_000, "max_pending_bytes": 1_000}
CALM = Watched(read(Metrics(CollectorRegistry()), 0.0), total(()), LIMITS, "serving", 0, None)


def watched(*, counts: dict[str, int] | None = None, gauges: dict[str, int] | None = None) -> Watched:
    latest = CALM.latest
    return replace(
        CALM,
        latest=replace(latest, counts={**latest.counts, **(counts or {})}, gauges={**latest.gauges, **(gauges or {})}),
    )


def recently(counts: dict[str, int], errors: dict[tuple[str, str, str], int] | None = None) -> Watched:
    return replace(CALM, recent=Span(300.0, counts, {}, errors or {}, {}))


def test_nothing_to_say() -> None:
    assert notes_of(CALM) == []
    assert notes_of(replace(CALM, beside_others=False)) == []


def test_what_the_backend_lacks_is_a_warning() -> None:
    (note,) = notes_of(replace(CALM, lacks="the backend has no time-series collections"))
    assert (note.severity, note.text) == ("warning", "The backend has no time-series collections.")


@pytest.mark.parametrize(
    ("seen", "severity", "words"),
    [
        (watched(counts={"internalErrors": 1}), "problem", "1 internal error since"),
        (watched(counts={"commitFailures": 2}), "problem", "2 failed commits"),
        (replace(CALM, state="paused", held=7), "warning", "paused the clients: 7 commands wait"),
        (replace(CALM, state="draining"), "warning", "drains"),
        (watched(gauges={"connections": 80}), "warning", "80% of max_connections"),
        (watched(gauges={"uncommittedMeasurements": 900}), "warning", "90% of max_pending_measurements"),
        (watched(gauges={"uncommittedBytes": 1_100}), "warning", "110% of max_pending_bytes"),
        (watched(gauges={"unjoinedParts": MANY_PARTS + 1}), "warning", "250,001 parts"),
        (recently({"rejectedConnections": 3}), "warning", "3 client connections were rejected"),
        (recently({"unknownOutcomes": 4}), "warning", "The replies to 4 commits"),
        (recently({"requests": 50}, {("find", "relay", "network"): 5}), "warning", "10% of the requests"),
        (replace(CALM, beside_others=True), "note", "Another tsproxy"),
    ],
)
def test_each_has_its_sentence(seen: Watched, severity: str, words: str) -> None:
    (note,) = notes_of(seen)
    assert note.severity == severity
    assert words in note.text


@pytest.mark.parametrize(
    "seen",
    [
        watched(gauges={"connections": 79, "uncommittedMeasurements": 799, "unjoinedParts": MANY_PARTS}),
        recently({"requests": 1_000}, {("find", "relay", "network"): 50}),
        recently({"requests": 4}, {("find", "relay", "network"): 4}),
        recently({"requests": 50}, {("insert", "relay", "duplicate_key"): 50}),
    ],
)
def test_what_is_usual_is_not_mentioned(seen: Watched) -> None:
    assert notes_of(seen) == []


def test_the_most_important_ones_come_first() -> None:
    seen = replace(watched(counts={"internalErrors": 1}, gauges={"connections": 99}), beside_others=True)
    assert [note.severity for note in notes_of(seen)] == ["problem", "warning", "note"]
