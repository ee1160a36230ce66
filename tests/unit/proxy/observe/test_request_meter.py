"""A meter counts requests by outcome and their latencies."""

from __future__ import annotations

from proxy.observe.error_classes import ErrorClass
from proxy.observe.histograms import Histogram
from proxy.observe.request_meter import RequestMeter


def test_a_request_is_counted_by_its_outcome_and_its_time() -> None:
    meter = RequestMeter("relay", Histogram((0.001, 0.01)))
    meter.done(0.0005)
    meter.done(0.005, 11000)
    meter.done(0.5, 112)
    assert meter.way == "relay"
    assert meter.succeeded == 1
    assert {each: count for each, count in meter.errors.items() if count} == {
        ErrorClass.DUPLICATE_KEY: 1,
        ErrorClass.CONFLICT: 1,
    }
    assert meter.latency.counts == [1, 1, 1]
    assert meter.latency.total == 0.5055
