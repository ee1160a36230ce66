"""The metrics of all workers as those of one proxy: a table of what becomes of each kind, and the sums.

Counters and histograms are added up. What a worker has counted stays in the sums when it ends, because a counter that
falls looks like a restart to Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

Values = Iterable[float]

GAUGES: Final[Mapping[str, Callable[[Values], float]]] = {
    "tsproxy_ready": min,
    "tsproxy_backend_up": min,
    "tsproxy_grows_in_parts": min,
    "tsproxy_timeseries_access": max,
    "tsproxy_slow_threshold_seconds": max,
    "tsproxy_loop_held_longest_seconds": max,
    "tsproxy_peers": max,
    "tsproxy_peers_linked": min,
    "process_start_time_seconds": min,
    "process_max_fds": min,
}
"""What a gauge of all workers is, if it is not the sum of theirs."""

Labels = tuple[tuple[str, str], ...]
SampleValues = dict[tuple[str, Labels], float]
"""Values by the name of the sample and its labels."""
_RISING: Final = ("counter", "histogram", "summary")


class Families:
    """The metrics of one process, as it has shown them last."""

    def __init__(self, text: str = "") -> None:
        """``text``: in the text format of Prometheus."""
        self.by_name: dict[str, Metric] = {each.name: each for each in text_string_to_metric_families(text)}

    def rising(self) -> Iterator[tuple[Metric, SampleValues]]:
        """What only rises, with its values."""
        for family in self.by_name.values():
            if family.type in _RISING:
                yield family, numbers_of(family)


def numbers_of(family: Metric) -> SampleValues:
    """The values of all samples."""
    return {(sample.name, tuple(sample.labels.items())): sample.value for sample in family.samples}


class Sums:
    """The sums, with what workers have counted that have ended."""

    def __init__(self) -> None:
        self._gone: dict[str, SampleValues] = {}
        self._families: dict[str, Metric] = {}

    def ended(self, last: Families) -> None:
        """A worker has ended; ``last``: what it has shown last."""
        for family, numbers in last.rising():
            self._families.setdefault(family.name, family)
            kept = self._gone.setdefault(family.name, {})
            for key, value in numbers.items():
                kept[key] = kept.get(key, 0.0) + value

    def of(self, running: Iterable[Families]) -> Iterator[Metric]:
        """The metrics of all."""
        found = dict(self._families)
        values: dict[str, dict[tuple[str, Labels], list[float]]] = {}
        for name, numbers in self._gone.items():
            values[name] = {key: [value] for key, value in numbers.items()}
        for process in running:
            for name, family in process.by_name.items():
                found.setdefault(name, family)
                of_family = values.setdefault(name, {})
                for key, value in numbers_of(family).items():
                    of_family.setdefault(key, []).append(value)
        for name, family in found.items():
            combine = sum if family.type in _RISING else GAUGES.get(name, sum)
            yield _metric(family, {key: combine(each) for key, each in values.get(name, {}).items()})


def _metric(family: Metric, numbers: Mapping[tuple[str, Labels], float]) -> Metric:
    summed = Metric(family.name, family.documentation, family.type)
    for (name, labels), value in numbers.items():
        summed.add_sample(name, dict(labels), value)
    return summed
