"""The ``process_*`` metrics of the metrics library: CPU time, memory, open files.

The library counts open files by listing them, which takes milliseconds with thousands of clients. So the values are
read in a thread before each scrape (``proxy.observe.status``).
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector


class ProcessMetrics(Collector):
    """Shows the values of the last ``read``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._library = ProcessCollector(registry=None)
        self._values: list[Metric] = []
        self.read()
        registry.register(self)

    def read(self) -> None:
        """Read the values; may be called in any thread."""
        self._values = list(self._library.collect())

    def collect(self) -> Iterable[Metric]:
        """The values, for the registry."""
        return self._values
