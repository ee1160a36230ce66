"""Slow commands that are alike, together: hundreds of the same kind would hide the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from proxy.observe.slow_ring import SlowEntry

OF_ALL_COMMANDS: Final = ("pause_ms", "primary_ms")
"""Waits that all commands have alike: behind them, those that are slow themselves would not be found."""


@dataclass(slots=True)
class SlowGroup:
    """Entries with the same command, namespace and shape. ``slowest`` is one of them, ``latest_at`` in ISO 8601.

    Times are those that the proxy and the backend took, with all waits except ``OF_ALL_COMMANDS``.
    """

    slowest: SlowEntry
    latest_at: str
    count: int = 0
    sum_ms: float = 0.0
    slowest_ms: float = 0.0

    def add(self, entry: SlowEntry) -> None:
        """One more entry."""
        values = entry.values
        taken_ms = float(values.get("duration_ms", 0.0)) - sum(values.get(name, 0.0) for name in OF_ALL_COMMANDS)
        self.count += 1
        self.sum_ms += taken_ms
        if taken_ms > self.slowest_ms:
            self.slowest, self.slowest_ms = entry, taken_ms
        self.latest_at = max(self.latest_at, entry.at)


def grouped(entries: Iterable[SlowEntry], since: str, most: int) -> list[SlowGroup]:
    """The groups of entries from ``since`` on, at most ``most``: those that took most time come first.

    ``entries`` begin with the newest. ``since`` is a time as entries have it.
    """
    found: dict[tuple[object, ...], SlowGroup] = {}
    for entry in entries:
        if entry.at < since:
            break
        key = (entry.event, *(entry.values.get(name) for name in ("command", "namespace", "shape")))
        group = found.get(key)
        if group is None:
            group = found[key] = SlowGroup(entry, entry.at)
        group.add(entry)
    return sorted(found.values(), key=lambda group: -group.sum_ms)[:most]
