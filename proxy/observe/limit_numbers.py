"""The numbers of limited users and databases.

Labels are the names of entries in the settings; all users and databases without an entry share the label ``*``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from proxy.settings.limits import EVERYONE

REFUSED: Final = ("connections", "commands", "measurements")
"""What is refused."""


class LimitCounts:
    """The counts of one label."""

    __slots__ = ("commands", "connections", "refused", "waiting_commands", "waiting_inserts")

    def __init__(self) -> None:
        self.connections = 0
        self.commands = 0
        self.waiting_commands = 0
        self.waiting_inserts = 0
        self.refused = dict.fromkeys(REFUSED, 0)

    def add(self, other: LimitCounts) -> None:
        """Add the counts of another label."""
        self.connections += other.connections
        self.commands += other.commands
        self.waiting_commands += other.waiting_commands
        self.waiting_inserts += other.waiting_inserts
        for limit, count in other.refused.items():
            self.refused[limit] += count


class LimitNumbers:
    """All counts, by kind (``user`` or ``database``) and label."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], LimitCounts] = {}
        self.shows_names = False
        """Whether labels are shown; otherwise, the sums of all."""

    def of(self, kind: str, label: str) -> LimitCounts:
        """The counts of a label, which must be the name of an entry in the settings."""
        counts = self._counts.get((kind, label))
        if counts is None:
            counts = self._counts[kind, label] = LimitCounts()
        return counts

    def _sums(self) -> dict[tuple[str, str], LimitCounts]:
        """The counts of each kind under the one label ``*``."""
        sums: dict[tuple[str, str], LimitCounts] = {}
        for (kind, _), counts in list(self._counts.items()):
            sums.setdefault((kind, EVERYONE), LimitCounts()).add(counts)
        return sums

    def collect(self) -> Iterator[Metric]:
        """The metrics with their current values."""
        labels = ("kind", "name")
        connections = GaugeMetricFamily(
            "tsproxy_limited_connections",
            "Connections of limited users; * is the sum of all without an entry.",
            labels=labels,
        )
        commands = GaugeMetricFamily(
            "tsproxy_limited_commands", "Running commands of limited users and databases.", labels=labels
        )
        waiting = GaugeMetricFamily(
            "tsproxy_limited_commands_waiting", "Commands that wait for a place.", labels=labels
        )
        inserts = GaugeMetricFamily(
            "tsproxy_limited_inserts_waiting", "Inserts that wait for their rate.", labels=labels
        )
        refused = CounterMetricFamily(
            "tsproxy_limit_refusals", "Commands and inserts that were refused at a limit.", labels=(*labels, "limit")
        )
        for key, counts in list((self._counts if self.shows_names else self._sums()).items()):
            if key[0] == "user":
                connections.add_metric(key, counts.connections)
            commands.add_metric(key, counts.commands)
            waiting.add_metric(key, counts.waiting_commands)
            inserts.add_metric(key, counts.waiting_inserts)
            for limit, count in counts.refused.items():
                if limit != "connections" or key[0] == "user":
                    refused.add_metric((*key, limit), count)
        yield from (connections, commands, waiting, inserts, refused)
