from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from catalog.errors import BackendUnavailable
from proxy.backend.service import ServicePool
from proxy.observe.trace_numbers import TraceNumbers
from proxy.process.traced import traced, tracing_of
from proxy.request.slow_threshold import NEVER_SLOW
from proxy.settings.config import ConfigurationError, Settings
from tests.support.committer_bench import CommitterBench
from tests.support.spans import InMemory


def test_nothing_is_traced_by_default() -> None:
    assert tracing_of(Settings(), TraceNumbers(CollectorRegistry())) is None


@pytest.mark.parametrize("variable", ["OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_SCHEDULE_DELAY"])
def test_variables_that_are_not_valid_are_named(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "-5")
    with pytest.raises(ConfigurationError, match="tracing = true cannot be used"):
        tracing_of(Settings(tracing=True), TraceNumbers(CollectorRegistry()))


def test_headers_that_have_become_unreadable_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="tracing = true cannot be used"):
        tracing_of(Settings(tracing=True, trace_headers_file=tmp_path / "missing"), TraceNumbers(CollectorRegistry()))


async def nowhere(timeout_seconds: float) -> tuple[str, int]:
    raise BackendUnavailable("nowhere")


async def test_the_committer_gets_an_observer_only_if_commands_are_traced() -> None:
    bench, pool = CommitterBench(), ServicePool(nowhere, None, None, 1.0)
    assert traced(None, bench.committer, NEVER_SLOW, pool, bench.reported.append) is None
    assert bench.committer.options.observer is None
    spans = traced(InMemory().tracing, bench.committer, NEVER_SLOW, pool, bench.reported.append)
    assert spans is not None
    assert spans.watch.records_spans
    assert bench.committer.options.observer is not None
