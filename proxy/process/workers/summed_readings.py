"""The numbers of the status page of all workers together, and their way from the workers to the supervisor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from proxy.observe.readings import NO_COUNTS, NO_GAUGES, Reading

K = TypeVar("K")

NOTHING = Reading(0.0, is_ready=False, counts=NO_COUNTS, latencies={}, errors={}, rollovers={}, gauges=NO_GAUGES)
"""Before there are workers."""


def document_of(reading: Reading) -> dict[str, Any]:
    """A reading as a document."""
    return {
        "at": reading.at_seconds,
        "ready": reading.is_ready,
        "counts": dict(reading.counts),
        "latencies": {way: list(counts) for way, counts in reading.latencies.items()},
        "errors": [[*key, count] for key, count in reading.errors.items()],
        "rollovers": dict(reading.rollovers),
        "gauges": dict(reading.gauges),
    }


def reading_from(document: Mapping[str, Any]) -> Reading:
    """What ``document_of`` was given."""
    return Reading(
        document["at"],
        document["ready"],
        document["counts"],
        {way: tuple(counts) for way, counts in document["latencies"].items()},
        {(command, way, kind): count for command, way, kind, count in document["errors"]},
        document["rollovers"],
        document["gauges"],
    )


def without_gauges(reading: Reading) -> Reading:
    """What stays of a worker that has ended."""
    return replace(reading, is_ready=True, gauges={})


def sum_of(readings: Sequence[Reading], now_seconds: float) -> Reading:
    """All readings as one; it is ready if all are."""
    latencies: dict[str, list[tuple[int, ...]]] = {}
    for reading in readings:
        for way, counts in reading.latencies.items():
            latencies.setdefault(way, []).append(counts)
    return Reading(
        now_seconds,
        is_ready=bool(readings) and all(reading.is_ready for reading in readings),
        counts=_sum([NO_COUNTS, *(reading.counts for reading in readings)]),
        latencies={way: tuple(map(sum, zip(*each, strict=True))) for way, each in latencies.items()},
        errors=_sum([reading.errors for reading in readings]),
        rollovers=_sum([reading.rollovers for reading in readings]),
        gauges=_sum([NO_GAUGES, *(reading.gauges for reading in readings)]),
    )


def _sum(numbers: Sequence[Mapping[K, int]]) -> dict[K, int]:
    total: Counter[K] = Counter()
    for each in numbers:
        total.update(each)
    return dict(total)
