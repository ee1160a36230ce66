"""A collector of spans in the test's own process: decodes what a real exporter sends with OTLP over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

SERVER, CLIENT, INTERNAL = Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_INTERNAL


@dataclass(frozen=True)
class Collected:
    """One span; ids are hexadecimal, times are nanoseconds."""

    name: str
    trace: str
    id: str
    parent: str
    kind: int
    started: int
    ended: int
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    is_error: bool
    service: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """What links name."""
        return self.trace, self.id


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def _collected(span: Span, service: dict[str, Any]) -> Collected:
    return Collected(
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=span.kind,
        started=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
        attributes=_values(span.attributes),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        is_error=span.status.code == Status.STATUS_CODE_ERROR,
        service=service,
    )


class Collector:
    """Listens on a free port of this machine. While ``hangs`` is set, no request is answered."""

    def __init__(self) -> None:
        self.spans: list[Collected] = []
        self.headers: list[dict[str, str]] = []
        self.hangs = threading.Event()
        self.released = threading.Event()
        self._came = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def url(self) -> str:
        """The endpoint for spans."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if collector.hangs.is_set():
                    collector.released.wait()
                    return
                collector.take(self.path, dict(self.headers), body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        assert path == "/v1/traces"
        request = ExportTraceServiceRequest.FromString(body)
        found = [
            _collected(span, _values(resource.resource.attributes))
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        self.headers.append({name.lower(): value for name, value in headers.items()})
        with self._came:
            self.spans.extend(found)
            self._came.notify_all()

    def commands(self, name: str) -> list[Collected]:
        """The spans of commands with this name of a span."""
        return [span for span in list(self.spans) if span.name == name and span.kind == SERVER]

    def children(self, parent: Collected) -> list[Collected]:
        """The spans directly below another, in the order of their start."""
        found = [span for span in list(self.spans) if span.parent == parent.id and span.trace == parent.trace]
        return sorted(found, key=lambda span: span.started)

    def wait(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        """Return when the condition, which new spans may make true, holds."""
        with self._came:
            assert self._came.wait_for(condition, seconds), [span.name for span in self.spans]
