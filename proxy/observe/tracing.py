"""Spans through OpenTelemetry's SDK, sent with OTLP over HTTP by a thread of the SDK.

The only module that imports ``opentelemetry``, which the extra ``tsproxy[otel]`` brings. The variables ``OTEL_*`` apply
where no setting does: queue, batches, time-outs, certificates, compression, the name and attributes of the service.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from os import environ
from typing import Final
from uuid import uuid4

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from proxy.observe.spans import Attributes, Kind, Span
from proxy.observe.trace_numbers import TraceNumbers

QUEUED_SPANS: Final = 2048
"""Default of ``OTEL_BSP_MAX_QUEUE_SIZE``: spans that wait, and those that are being exported."""
REASON_SECONDS: Final = 60.0
"""Interval of log messages about failed exports."""

_KINDS: Final = {Kind.SERVER: trace.SpanKind.SERVER, Kind.CLIENT: trace.SpanKind.CLIENT}
_NO_PARENT: Final = Context()
_LIBRARIES: Final = ("opentelemetry", "urllib3", "requests")

log = structlog.get_logger("tsproxy.tracing")


class Tracing:
    """Makes spans and exports them; implements ``Tracer``."""

    def __init__(self, exporter: SpanExporter, sampler: Sampler, numbers: TraceNumbers) -> None:
        """``sampler``: for commands. Commits are recorded if one of their inserts is."""
        self._numbers = numbers
        exporting = BatchSpanProcessor(_CountedExporter(exporter, numbers), max_queue_size=_queue_size())
        self._processor = _BoundedQueue(exporting, numbers, _queue_size())
        resource = _resource()
        self._commands = self._tracer(sampler, resource)
        self._commits = self._tracer(ALWAYS_ON, resource)
        self._propagator = TraceContextTextMapPropagator()

    def _tracer(self, sampler: Sampler, resource: Resource) -> trace.Tracer:
        provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
        provider.add_span_processor(self._processor)
        return provider.get_tracer("tsproxy", metadata.version("tsproxy"))

    def command(self, name: str, started_ns: int, carried: Mapping[str, str]) -> Span:
        parent = self._propagator.extract(carried, _NO_PARENT) if carried else _NO_PARENT
        return _SdkSpan(
            self._commands.start_span(name, parent, trace.SpanKind.SERVER, start_time=started_ns), self._commands
        )

    def commit(self, name: str, started_ns: int, inserts: Sequence[Span]) -> Span:
        links = _links(inserts)
        span = self._commits.start_span(name, _NO_PARENT, trace.SpanKind.CLIENT, links=links, start_time=started_ns)
        return _SdkSpan(span, self._commits)

    async def close(self, patience_seconds: float) -> None:
        """Export what waits, for at most this time; spans that end later are dropped."""
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def shut_down() -> None:
            self._processor.shutdown()
            if not loop.is_closed():
                loop.call_soon_threadsafe(done.set)

        # A daemon: a collector that hangs does not keep the process.
        threading.Thread(target=shut_down, name="trace-flush", daemon=True).start()
        try:
            async with asyncio.timeout(patience_seconds):
                await done.wait()
        except TimeoutError:
            pass
        self._numbers.left = self._numbers.waiting
        if self._numbers.left:
            log.warning("spans were not exported before the stop", spans=self._numbers.left)


def start_tracing(
    endpoint: str | None, headers: Mapping[str, str], ratio: float, sampling: str, numbers: TraceNumbers
) -> Tracing:
    """Start exporting to ``endpoint``; the one of the environment, or a collector on this machine, if ``None``.

    ``headers`` replace those of the environment unless they are empty. ``ratio``: of the commands that are recorded,
    from 0 to 1; with ``sampling`` ``parent``, of those whose client has not decided that.
    """
    handler = _Reasons()
    for name in _LIBRARIES:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    by_ratio = TraceIdRatioBased(ratio)
    sampler = ParentBased(by_ratio) if sampling == "parent" else by_ratio
    return Tracing(OTLPSpanExporter(endpoint, headers=dict(headers) or None), sampler, numbers)


def _queue_size() -> int:
    given = environ.get("OTEL_BSP_MAX_QUEUE_SIZE", "")
    return int(given) if given.isdecimal() and int(given) else QUEUED_SPANS


def _resource() -> Resource:
    named = OTELResourceDetector().detect().attributes
    return Resource.create(
        {
            "service.name": named.get("service.name", "tsproxy"),
            "service.version": metadata.version("tsproxy"),
            "service.instance.id": named.get("service.instance.id", str(uuid4())),
        }
    )


def _links(spans: Sequence[Span]) -> list[trace.Link]:
    return [trace.Link(each.context) for each in spans if isinstance(each, _SdkSpan)]


class _SdkSpan:
    """A ``Span`` of the SDK."""

    __slots__ = ("_span", "_tracer")

    def __init__(self, span: trace.Span, tracer: trace.Tracer) -> None:
        self._span = span
        self._tracer = tracer

    @property
    def is_recorded(self) -> bool:
        return self._span.is_recording()

    @property
    def context(self) -> trace.SpanContext:
        return self._span.get_span_context()

    def link(self, other: Span) -> None:
        if isinstance(other, _SdkSpan):
            self._span.add_link(other.context)

    def child(
        self,
        name: str,
        kind: Kind,
        started_ns: int,
        ended_ns: int,
        attributes: Attributes,
        links: Sequence[Span] = (),
    ) -> None:
        parent = trace.set_span_in_context(self._span, _NO_PARENT)
        made = self._tracer.start_span(
            name,
            parent,
            _KINDS.get(kind, trace.SpanKind.INTERNAL),
            attributes,
            _links(links),
            start_time=started_ns,
        )
        made.end(ended_ns)

    def end(self, name: str, ended_ns: int, attributes: Attributes, error: str = "") -> None:
        span = self._span
        span.update_name(name)
        span.set_attributes(attributes)
        if error:
            span.set_attribute("error.type", error)
            span.set_status(trace.StatusCode.ERROR)
        span.end(ended_ns)


class _BoundedQueue(SpanProcessor):
    """Drops and counts what the queue has no room for; the SDK would only log it."""

    def __init__(self, exporting: SpanProcessor, numbers: TraceNumbers, limit: int) -> None:
        self._exporting = exporting
        self._numbers = numbers
        self._limit = limit

    def on_end(self, span: ReadableSpan) -> None:
        """Called by the SDK in the thread of the event loop."""
        numbers = self._numbers
        if not span.context.trace_flags.sampled:
            return
        if numbers.waiting >= self._limit:
            numbers.refused += 1
            return
        numbers.ended += 1
        self._exporting.on_end(span)

    def shutdown(self) -> None:
        """See the SDK; waits for the exporter."""
        self._exporting.shutdown()


class _CountedExporter(SpanExporter):
    def __init__(self, exporter: SpanExporter, numbers: TraceNumbers) -> None:
        self._exporter = exporter
        self._numbers = numbers

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Called by the SDK in the exporter's thread."""
        try:
            result = self._exporter.export(spans)
        except Exception:
            self._numbers.failed += len(spans)
            raise
        if result is SpanExportResult.SUCCESS:
            self._numbers.exported += len(spans)
        else:
            self._numbers.failed += len(spans)
        return result

    def shutdown(self) -> None:
        """See the SDK."""
        self._exporter.shutdown()


class _Reasons(logging.Handler):
    """Logs why spans could not be exported, once in ``REASON_SECONDS``; the libraries repeat it for each attempt."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._next_seconds = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        now_seconds = time.monotonic()
        if now_seconds >= self._next_seconds:
            self._next_seconds = now_seconds + REASON_SECONDS
            log.warning("spans cannot be exported", reason=record.getMessage())
