"""Slow commands that are alike, together: hundreds of the same kind would hide the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from proxy.observe.slow_ring import SlowEntry


@dataclass(slots=True)
class SlowGroup:
    """Entries with the same command, namespace and shape. ``slowest`` is one of them, ``latest_at`` in ISO 8601."""

    slowest: SlowEntry
    latest_at: str
    count: int = 0
    sum_ms: float = 0.0
    slowest_ms: float = 0.0

    def add(self, entry: SlowEntry) -> None:
        """One more entry."""
        duration_ms = float(entry.values.get("duration_ms", 0.0))
        self.count += 1
        self.sum_ms += duration_ms
        if duration_ms > self.slowest_ms:
            self.slowest, self.slowest_ms = entry, duration_ms
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
