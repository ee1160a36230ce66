from __future__ import annotations

from prometheus_client import CollectorRegistry

from proxy.observe.trace_numbers import TraceNumbers


def test_what_waits_is_what_has_no_end_yet() -> None:
    numbers = TraceNumbers(CollectorRegistry())
    numbers.ended, numbers.refused, numbers.exported, numbers.failed = 10, 5, 4, 1
    assert numbers.waiting == 5
    numbers.left = 5
    assert numbers.waiting == 0


def test_each_reason_is_shown_from_the_start() -> None:
    registry = CollectorRegistry()
    numbers = TraceNumbers(registry)
    dropped = "tsproxy_trace_spans_dropped_total"
    assert registry.get_sample_value(dropped, {"reason": "export_failed"}) == 0
    numbers.refused, numbers.failed, numbers.left, numbers.exported = 1, 2, 3, 4
    found = [
        registry.get_sample_value(dropped, {"reason": each}) for each in ("queue_full", "export_failed", "stopped")
    ]
    assert found == [1, 2, 3]
    assert registry.get_sample_value("tsproxy_trace_spans_total") == 4
