"""Spans that end in memory instead of at a collector."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler
from prometheus_client import CollectorRegistry

from proxy.observe.trace_numbers import TraceNumbers
from proxy.observe.tracing import Tracing


class InMemory:
    """A real tracer, whose spans ``ended`` returns."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self.registry = CollectorRegistry()
        self.numbers = TraceNumbers(self.registry)
        self._exporter = InMemorySpanExporter()
        self.tracing = Tracing(self._exporter, sampler, self.numbers)

    async def ended(self) -> Mapping[str, ReadableSpan]:
        """All spans that have ended, by name; spans that end later are lost."""
        await self.tracing.close(10.0)
        return {span.name: span for span in self._exporter.get_finished_spans()}
