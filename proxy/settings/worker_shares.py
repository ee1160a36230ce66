"""The share of each worker in the limits of memory, connections and load: a pure function of the settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from proxy.settings.limits import DatabaseLimits
from proxy.settings.table import Settings

MOST_WORKERS: Final = 64
LEAST_RECEIVING_BYTES: Final = 192_000_000
"""The least that the setting allows: one client gets half of it, for two messages of the maximum size."""
LEAST_PENDING_BYTES: Final = 16_777_216

DIVIDED: Final[Mapping[str, int]] = {
    "max_connections": 1,
    "max_connections_per_address": 1,
    "max_receiving_bytes": LEAST_RECEIVING_BYTES,
    "max_pending_measurements": 1,
    "max_pending_bytes": LEAST_PENDING_BYTES,
    "timeseries_idle_bucket_expiry_memory_usage_threshold": 1,
}
"""The settings that are divided, with the least that each worker gets. 0 stays 0, which means no limit."""
_NOT_DIVIDED: Final = "max_wait_ms"
"""Of the limits of users and databases."""

LimitsT = TypeVar("LimitsT", bound=DatabaseLimits)


def number_of_workers(settings: Settings, cores: Callable[[], int]) -> int:
    """How many processes serve clients; ``cores`` is asked for ``auto``."""
    if settings.workers == "auto":
        return max(1, min(cores(), MOST_WORKERS))
    return settings.workers


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_of(settings: Settings, workers: int, number: int) -> Settings:
    """The settings of worker ``number`` of ``workers``, from 0. The shares of all add up to the setting.

    A share is not below what one worker needs, so the sum may be above a small setting.
    """
    divided: dict[str, Any] = {
        name: _share(getattr(settings, name), workers, number, least) for name, least in DIVIDED.items()
    }
    for name in ("user_limits", "database_limits"):
        table = getattr(settings, name)
        divided[name] = {each: _limits(limits, workers, number) for each, limits in table.items()}
    return replace(settings, **divided)


def _share(total: int, workers: int, number: int, least: int = 1) -> int:
    return max(least, total // workers + (number < total % workers)) if total else 0


def _limits(limits: LimitsT, workers: int, number: int) -> LimitsT:
    said = msgspec.structs.asdict(limits)
    shares = {
        name: _share(value, workers, number)
        for name, value in said.items()
        if value is not None and name != _NOT_DIVIDED
    }
    return msgspec.structs.replace(limits, **shares)
