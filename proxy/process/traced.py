"""Starts tracing, and connects it with the commands and the commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from catalog.commit.committer import Committer
from proxy.backend.service import ServicePool
from proxy.observe.spans import Tracer
from proxy.observe.trace_numbers import TraceNumbers
from proxy.request.command_spans import CommandSpans
from proxy.request.commit_spans import CommitSpans
from proxy.request.slow_threshold import SlowThreshold
from proxy.settings.config import ConfigurationError, Settings
from proxy.settings.trace_target import headers_of

if TYPE_CHECKING:
    from proxy.observe.tracing import Tracing


def tracing_of(settings: Settings, numbers: TraceNumbers) -> Tracing | None:
    """Start tracing if it is switched on; ``numbers`` counts its spans.

    Raises ``ConfigurationError`` if the headers cannot be read, or the variables ``OTEL_*`` are not valid.
    """
    if not settings.tracing:
        return None
    # Imported here: its packages are there only with tsproxy[otel], which loading the settings has checked.
    from proxy.observe.tracing import start_tracing

    path = settings.trace_headers_file
    try:
        return start_tracing(
            settings.trace_endpoint,
            {} if path is None else headers_of(path),
            settings.trace_ratio,
            settings.trace_sampling,
            numbers,
        )
    except (OSError, ValueError) as error:
        raise ConfigurationError([f"tracing = true cannot be used: {error}"]) from None


def traced(
    tracer: Tracer | None,
    committer: Committer,
    slow: SlowThreshold,
    pool: ServicePool,
    report: Callable[[BaseException], None],
) -> CommandSpans | None:
    """Let ``tracer`` see commits from now on; returns what sees commands. ``None``, and no effect, without one."""
    if tracer is None:
        return None
    spans = CommandSpans(tracer, slow, report)
    committer.observe(CommitSpans(tracer, spans, lambda: pool.address, report))
    return spans
