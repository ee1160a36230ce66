"""What the servers show while a load runs, once a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from bench.processes import cpu_seconds
from bench.targets import Collection, Site

Curve = Sequence[tuple[float, float]]
"""Seconds since the beginning, and a value."""
MEGABYTE: Final = 1024 * 1024


class Sampler:
    """Samples from entering to leaving the context; ``curves`` then has what it saw, by name."""

    def __init__(self, site: Site, collection: Collection, interval_seconds: float) -> None:
        self._site = site
        self._collection = collection
        self._interval_seconds = interval_seconds
        self._points: dict[str, list[tuple[float, float]]] = {}
        self._over = threading.Event()
        # The points are the thread's until it is joined.
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def curves(self) -> Mapping[str, Curve]:
        """Cores that mongod and proxy used, buckets, and dirty megabytes in the server's cache."""
        return self._points

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        processes = {"mongod_cores": self._site.mongod_pids, "proxy_cores": self._site.proxy_pids}
        began = at = time.monotonic()
        used = {name: cpu_seconds(pids) for name, pids in processes.items()}
        while not self._over.wait(self._interval_seconds):
            now = time.monotonic()
            for name, pids in processes.items():
                cpu = cpu_seconds(pids)
                self._add(name, now - began, (cpu - used[name]) / (now - at))
                used[name] = cpu
            at = now
            status = self._site.direct.admin.command("serverStatus", repl=0, metrics=0, locks=0)
            # A server that is busy leaves the section out.
            if (engine := status.get("wiredTiger")) is not None:
                dirty = engine["cache"]["tracked dirty bytes in the cache"]
                self._add("dirty_mb", now - began, dirty / MEGABYTE)
            self._add("buckets", now - began, self._site.bucket_count(self._collection))

    def _add(self, name: str, seconds: float, value: float) -> None:
        self._points.setdefault(name, []).append((round(seconds, 3), round(value, 3)))
