from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, TraceIdRatioBased
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from proxy.observe.spans import Kind
from proxy.observe.trace_numbers import TraceNumbers
from proxy.observe.tracing import QUEUED_SPANS, Tracing, start_tracing
from tests.support.spans import InMemory

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


async def test_a_span_has_its_parts_links_and_error() -> None:
    memory = InMemory()
    span = memory.tracing.command("insert", 1_000, {})
    commit = memory.tracing.commit("commit", 2_000, [span])
    span.link(commit)
    span.child("commit", Kind.INTERNAL, 2_000, 3_000, {}, (commit,))
    span.child("backend", Kind.CLIENT, 2_000, 3_000, {"server.port": 1})
    commit.end("commit rows", 4_000, {"a": 1})
    span.end("insert rows", 5_000, {"db.operation.name": "insert"}, "Unauthorized")
    spans = await memory.ended()
    whole, shared = spans["insert rows"], spans["commit rows"]
    assert (whole.start_time, whole.end_time, whole.kind.name) == (1_000, 5_000, "SERVER")
    assert dict(whole.attributes or {}) == {"db.operation.name": "insert", "error.type": "Unauthorized"}
    assert whole.status.status_code.name == "ERROR"
    assert shared.status.status_code.name == "UNSET"
    assert [link.context.span_id for link in shared.links] == [whole.context.span_id]
    assert [link.context.span_id for link in whole.links] == [shared.context.span_id]
    for name, kind in (("commit", "INTERNAL"), ("backend", "CLIENT")):
        assert spans[name].parent is not None
        assert spans[name].parent.span_id == whole.context.span_id
        assert spans[name].kind.name == kind
    assert shared.parent is None
    assert whole.resource.attributes["service.name"] == "tsproxy"


@pytest.mark.parametrize(
    ("carried", "parent"),
    [
        (SAMPLED, PARENT),
        ({**SAMPLED, "tracestate": "a=b"}, PARENT),
        ({"traceparent": f"00-{'0' * 32}-{PARENT}-01"}, None),
        ({"traceparent": "x" * 55}, None),
        ({"traceparent": f"00-{TRACE}-{PARENT}-zz"}, None),
        ({"tracestate": "a=b"}, None),
        ({}, None),
    ],
)
async def test_the_parent_is_that_of_the_client_if_it_is_valid(carried: dict[str, str], parent: str | None) -> None:
    memory = InMemory()
    memory.tracing.command("find", 1_000, carried).end("find rows", 2_000, {})
    found = (await memory.ended())["find rows"].parent
    assert (None if found is None else f"{found.span_id:016x}") == parent


async def test_sampling_by_the_parent_and_by_the_ratio() -> None:
    never = TraceIdRatioBased(0.0)
    decides = InMemory(ParentBased(never)).tracing
    assert decides.command("find", 1, SAMPLED).is_recorded
    assert not decides.command("find", 1, {}).is_recorded
    not_sampled = {"traceparent": SAMPLED["traceparent"][:-1] + "0"}
    assert not InMemory(ParentBased(ALWAYS_ON)).tracing.command("find", 1, not_sampled).is_recorded
    assert not InMemory(never).tracing.command("find", 1, SAMPLED).is_recorded
    half = InMemory(TraceIdRatioBased(0.5)).tracing
    recorded = sum(half.command("find", 1, {}).is_recorded for _ in range(1000))
    assert 400 < recorded < 600


class Held(SpanExporter):
    """Exports nothing until it is released, and then fails or raises as wanted."""

    def __init__(self, result: SpanExportResult | None = SpanExportResult.SUCCESS) -> None:
        self.released = threading.Event()
        self._result = result

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.released.wait()
        if self._result is None:
            raise OSError("planted")
        return self._result


@pytest.mark.parametrize("result", [SpanExportResult.SUCCESS, SpanExportResult.FAILURE, None])
async def test_spans_without_room_are_dropped_and_counted(result: SpanExportResult | None) -> None:
    exporter, numbers = Held(result), TraceNumbers(CollectorRegistry())
    tracing = Tracing(exporter, ALWAYS_ON, numbers)
    for _ in range(QUEUED_SPANS + 100):
        tracing.command("find", 1, {}).end("find", 2, {})
    assert (numbers.waiting, numbers.refused) == (QUEUED_SPANS, 100)
    exporter.released.set()
    await tracing.close(10.0)
    assert numbers.left == 0
    assert (numbers.exported, numbers.failed) == (
        (QUEUED_SPANS, 0) if result is SpanExportResult.SUCCESS else (0, QUEUED_SPANS)
    )


async def test_a_stop_waits_no_longer_than_it_may() -> None:
    exporter, numbers = Held(), TraceNumbers(CollectorRegistry())
    tracing = Tracing(exporter, ALWAYS_ON, numbers)
    tracing.command("find", 1, {}).end("find", 2, {})
    with capture_logs() as logs:
        await tracing.close(0.01)
    exporter.released.set()
    assert numbers.left == 1
    assert [line["spans"] for line in logs] == [1]


async def test_the_variables_of_opentelemetry_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "measurements")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "600")
    memory = InMemory()
    memory.tracing.command("find", 1, {}).end("find", 2, {})
    resource = (await memory.ended())["find"].resource.attributes
    assert resource["service.name"] == "measurements"
    assert resource["deployment.environment.name"] == "test"
    exporter, numbers = Held(), TraceNumbers(CollectorRegistry())
    tracing = Tracing(exporter, ALWAYS_ON, numbers)
    for _ in range(700):
        tracing.command("find", 1, {}).end("find", 2, {})
    exporter.released.set()
    await tracing.close(10.0)
    assert numbers.refused == 100


@pytest.mark.parametrize(("sampling", "recorded"), [("parent", True), ("ratio", False)])
async def test_who_decides_is_a_setting(sampling: str, recorded: bool) -> None:
    loggers = [logging.getLogger(name) for name in ("opentelemetry", "urllib3", "requests")]
    before = [(each.handlers[:], each.propagate, each.level) for each in loggers]
    tracing = start_tracing("http://127.0.0.1:1/v1/traces", {}, 0.0, sampling, TraceNumbers(CollectorRegistry()))
    try:
        assert tracing.command("find", 1, SAMPLED).is_recorded is recorded
        with capture_logs() as logs:
            for _ in range(3):
                loggers[0].getChild("exporter").error("cannot reach %s", "the collector")
        assert [(line["event"], line["reason"]) for line in logs] == [
            ("spans cannot be exported", "cannot reach the collector")
        ]
    finally:
        await tracing.close(1.0)
        for each, (handlers, propagate, level) in zip(loggers, before, strict=True):
            each.handlers[:], each.propagate = handlers, propagate
            each.setLevel(level)
