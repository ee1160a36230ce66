"""Figures of many rounds: medians, spread and ratios."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from bench.targets import NATIVE

HIGHER_IS_BETTER = frozenset({"rate", "first_rate", "last_rate", "read_rate"})


class SampleKey(NamedTuple):
    """Which round of a run it is."""

    workload: str
    case: str
    target: str
    repeat: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One round: what was measured where. ``metrics`` by name, units last in the name."""

    workload: str
    case: str
    target: str
    repeat: int
    metrics: Mapping[str, float]
    error: str = ""
    """Why there are no metrics."""
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    """Values over time by name: seconds since the beginning of the load, and the value."""

    @property
    def key(self) -> SampleKey:
        """Which round of the run it is."""
        return SampleKey(self.workload, self.case, self.target, self.repeat)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a round with curves gives."""

    metrics: Mapping[str, float]
    curves: Mapping[str, Sequence[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class Summary:
    """The rounds of one case and target. ``spread`` is (largest - smallest) / median."""

    workload: str
    case: str
    target: str
    medians: Mapping[str, float]
    spreads: Mapping[str, float]


@dataclass
class Results:
    """All samples of a run and how it was done."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)

    def summaries(self) -> list[Summary]:
        """One for each case and target, in the order they were first measured."""
        groups: dict[tuple[str, str, str], list[Sample]] = {}
        for sample in self.samples:
            if sample.error:
                continue
            groups.setdefault((sample.workload, sample.case, sample.target), []).append(sample)
        return [_summary(key, samples) for key, samples in groups.items()]

    @property
    def failed(self) -> list[Sample]:
        """Rounds that came to nothing."""
        return [sample for sample in self.samples if sample.error]

    def to_json(self) -> dict[str, Any]:
        """For files."""
        return {"settings": dict(self.settings), "samples": [asdict(sample) for sample in self.samples]}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Results:
        """What ``to_json`` gave."""
        return cls(raw["settings"], [Sample(**sample) for sample in raw["samples"]])


def _summary(key: tuple[str, str, str], samples: Sequence[Sample]) -> Summary:
    medians: dict[str, float] = {}
    spreads: dict[str, float] = {}
    for name in samples[0].metrics:
        values = [sample.metrics[name] for sample in samples if name in sample.metrics]
        medians[name] = statistics.median(values)
        spreads[name] = (max(values) - min(values)) / medians[name] if medians[name] else 0.0
    return Summary(*key, medians, spreads)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A target's median over the reference's, for one case and metric."""

    workload: str
    case: str
    metric: str
    target: str
    reference: str
    value: float
    spread: float
    """The larger of both spreads."""


def ratios(summaries: Sequence[Summary]) -> list[Ratio]:
    """Every target over the case's reference: native where it was measured, else the first target of the case."""
    cases: dict[tuple[str, str], list[Summary]] = {}
    for summary in summaries:
        cases.setdefault((summary.workload, summary.case), []).append(summary)
    found = []
    for group in cases.values():
        reference = next((summary for summary in group if summary.target == NATIVE), group[0])
        for summary in group:
            if summary is not reference:
                found.extend(_ratios(summary, reference))
    return found


def _ratios(summary: Summary, reference: Summary) -> list[Ratio]:
    return [
        Ratio(
            summary.workload,
            summary.case,
            metric,
            summary.target,
            reference.target,
            value / reference.medians[metric],
            max(summary.spreads[metric], reference.spreads[metric]),
        )
        for metric, value in summary.medians.items()
        if reference.medians.get(metric)
    ]
