"""What is counted at the end of each request."""

from __future__ import annotations

from proxy.observe.error_classes import ErrorClass, class_of
from proxy.observe.histograms import Histogram


class RequestMeter:
    """Counts the requests of one command name that went one way through the proxy (relay, translate, ingest …)."""

    __slots__ = ("errors", "latency", "succeeded", "way")

    def __init__(self, way: str, latency: Histogram) -> None:
        self.way = way
        self.latency = latency
        self.succeeded = 0
        self.errors = dict.fromkeys(ErrorClass, 0)

    def done(self, seconds: float, code: int = 0) -> None:
        """Count one request that took ``seconds``; ``code``: of the error that the client got, 0 for none."""
        if code:
            self.errors[class_of(code)] += 1
        else:
            self.succeeded += 1
        self.latency.observe(seconds)
