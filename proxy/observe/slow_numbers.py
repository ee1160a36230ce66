"""The counters of slow commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from proxy.observe.bounded_counts import OTHERS, BoundedCounts


class SlowNumbers:
    """Counts slow commands by command and way, by comment and by application name."""

    def __init__(self) -> None:
        self.applications = BoundedCounts()
        self.comments = BoundedCounts()
        self.shows_names = False
        """Whether texts of clients are shown; otherwise, all of them count as other."""
        self.not_logged = 0
        """Slow commands that were counted only, because there were too many at once."""
        self.threshold_seconds: Callable[[], float] | None = None
        """The threshold that applies now; ``math.inf`` if there is none."""
        self._commands: dict[tuple[str, str], int] = {}

    def count(self, command: str, way: str) -> None:
        """Count one; ``command`` must not be an arbitrary name from a client."""
        self._commands[command, way] = self._commands.get((command, way), 0) + 1

    @property
    def total(self) -> int:
        """All slow commands so far."""
        return sum(self._commands.values())

    def collect(self) -> Iterator[Metric]:
        """The metrics with their current values."""
        commands = CounterMetricFamily("tsproxy_slow_commands", "Slow commands.", labels=("command", "way"))
        for labels, count in list(self._commands.items()):
            commands.add_metric(labels, count)
        yield commands
        for name, counts in (("comment", self.comments), ("application", self.applications)):
            family = CounterMetricFamily(
                f"tsproxy_slow_commands_by_{name}",
                f"Slow commands by {name}; the first 100, others count as other.",
                labels=(name,),
            )
            items = counts.items()
            if items and not self.shows_names:
                items = [(OTHERS, sum(count for _, count in items))]
            for text, count in items:
                family.add_metric((text,), count)
            yield family
        yield CounterMetricFamily(
            "tsproxy_slow_commands_not_logged",
            "Slow commands that were counted only, because there were too many.",
            value=self.not_logged,
        )
        seconds = GaugeMetricFamily(
            "tsproxy_slow_threshold_seconds", "Duration from which a command is slow; +Inf if none is."
        )
        if self.threshold_seconds is not None:
            seconds.add_metric((), self.threshold_seconds())
        yield seconds
