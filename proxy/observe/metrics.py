"""The metrics: plain numbers that are incremented where events happen and read by each scrape.

An event on the fast path costs an increment of an attribute and, for latencies, one bisection: no lock, and no lookup
by label, because frequent callers keep their meter (``Metrics.requests``). For Prometheus there is one collector over
these numbers, which is registered with the given registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from catalog.buckets.stats import CLOSED_COUNTERS, Counters
from proxy.observe.access_numbers import AccessNumbers
from proxy.observe.histograms import Held, Histogram
from proxy.observe.limit_numbers import LimitNumbers
from proxy.observe.peer_numbers import PeerNumbers
from proxy.observe.request_meter import RequestMeter
from proxy.observe.slow_numbers import SlowNumbers

LATENCY_BOUNDS_SECONDS: Final = (
    *(0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
SIZE_BOUNDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0)

LIMITS: Final = (
    "max_connections",
    "max_pending_measurements",
    "max_pending_bytes",
    "timeseries_idle_bucket_expiry_memory_usage_threshold",
)
"""Settings that limit what a metric shows; each scrape has them, so that an alert can compare the two."""

REJECTIONS: Final = ("too_many", "too_many_per_address", "too_many_files", "too_many_handshakes")
"""Why client connections are rejected. Each is shown from the start: an increase from nothing would not be noticed."""

_COMMIT_KINDS = {"documents": "insert", "updates": "update"}


class RequestNumbers:
    """The meters of all commands and ways."""

    __slots__ = ("latencies", "meters")

    def __init__(self) -> None:
        self.meters: dict[tuple[str, str], RequestMeter] = {}
        """By command and way."""
        self.latencies: dict[str, Histogram] = {}
        """By way."""

    def meter(self, command: str, way: str) -> RequestMeter:
        """The meter for this command name and way; frequent callers should keep it.

        Each name stays as a label for ever, so it must not be an arbitrary name from a client.
        """
        meter = self.meters.get((command, way))
        if meter is None:
            latency = self.latencies.setdefault(way, Histogram(LATENCY_BOUNDS_SECONDS))
            meter = self.meters[command, way] = RequestMeter(way, latency)
        return meter

    def collect(self) -> Iterator[Metric]:
        """The metrics with their current values."""
        requests = CounterMetricFamily(
            "tsproxy_requests",
            "Requests that were answered; those that are always relayed count as other.",
            labels=("command", "way", "outcome"),
        )
        errors = CounterMetricFamily(
            "tsproxy_request_errors",
            "Requests that got an error, by class of its code.",
            labels=("command", "way", "class"),
        )
        for (command, way), meter in list(self.meters.items()):
            requests.add_metric((command, way, "ok"), meter.succeeded)
            requests.add_metric((command, way, "error"), sum(meter.errors.values()))
            for each, count in meter.errors.items():
                errors.add_metric((command, way, each.value), count)
        yield requests
        yield errors
        latencies = HistogramMetricFamily(
            "tsproxy_request_seconds",
            "Time from a complete request to its reply, including all waits.",
            labels=("way",),
        )
        for way, histogram in list(self.latencies.items()):
            latencies.add_metric((way,), list(histogram.cumulative()), histogram.total)
        yield latencies


class CommitterNumbers(Protocol):
    """The counters of ``catalog.commit.committer``."""

    rounds: int
    commands: int
    statements: int
    unknown_outcomes: int
    failures: int


class CommitNumbers:
    """Times and sizes of commit commands."""

    __slots__ = ("_statements", "seconds")

    def __init__(self) -> None:
        self.seconds = {kind: Histogram(LATENCY_BOUNDS_SECONDS) for kind in ("insert", "update")}
        self._statements = Histogram(SIZE_BOUNDS)

    def answered(self, identifier: str, statements: int, seconds: float) -> None:
        """Count one commit command by the name of its document sequence; other commands are ignored."""
        histogram = self.seconds.get(_COMMIT_KINDS.get(identifier, ""))
        if histogram is not None:
            histogram.observe(seconds)
            self._statements.observe(statements)

    def collect(self, numbers: CommitterNumbers) -> Iterator[Metric]:
        """The metrics with their current values."""
        seconds = HistogramMetricFamily(
            "tsproxy_commit_seconds", "Response times of commit commands at the backend.", labels=("kind",)
        )
        for kind, histogram in self.seconds.items():
            seconds.add_metric((kind,), list(histogram.cumulative()), histogram.total)
        yield seconds
        statements = HistogramMetricFamily("tsproxy_commit_statements", "Buckets written by one commit command.")
        statements.add_metric((), list(self._statements.cumulative()), self._statements.total)
        yield statements
        yield _counter("tsproxy_commit_rounds", "Commit rounds started.", numbers.rounds)
        yield _counter("tsproxy_commit_commands", "Commit commands sent.", numbers.commands)
        yield _counter(
            "tsproxy_commit_unknown_outcomes",
            "Commits with a lost reply, resolved by re-reading the stored buckets.",
            numbers.unknown_outcomes,
        )
        yield _counter(
            "tsproxy_commit_failures", "Commits that failed with an internal error; should be 0.", numbers.failures
        )


@dataclass(frozen=True, slots=True)
class CatalogReadings:
    """Functions that return the numbers of the catalog; called by each scrape."""

    counters: Callable[[], Counters]
    gauges: Callable[[], Mapping[str, int]]
    committer: CommitterNumbers
    grows_in_parts: Callable[[], bool] = lambda: False
    unjoined: Callable[[], int] = lambda: 0
    joined: Callable[[], int] = lambda: 0
    joins_put_off: Callable[[], int] = lambda: 0
    uncompressed: Callable[[], Mapping[str, int]] = dict
    """Buckets that were closed and stay uncompressed, by reason."""
    compression_seconds: Callable[[], float] = lambda: 0.0
    uncommitted: Callable[[], tuple[int, int]] = lambda: (0, 0)
    """Measurements that are staged and not settled, and the bytes of their documents."""
    native: Callable[[], int] = lambda: 0
    """Measurements of inserts that the backend carries out itself."""
    access: AccessNumbers = field(default_factory=AccessNumbers)
    peers: PeerNumbers = field(default_factory=PeerNumbers)
    pursued: Callable[[], tuple[int, int]] = lambda: (0, 0)
    """Measurements of writes with an unknown outcome that are pursued, and their bytes."""


class Metrics(Collector):
    """All numbers of one proxy process."""

    def __init__(self, registry: CollectorRegistry, limits: Mapping[str, int] | None = None) -> None:
        """``registry`` is the caller's own, never the library's global one; ``limits``: the values of ``LIMITS``."""
        self.limits = dict(limits or {})
        self.connections = ConnectionNumbers()
        self.slow = SlowNumbers()
        self.limited = LimitNumbers()
        self.backend_up = False
        self.is_ready: Callable[[], bool] = lambda: False
        self.embedded_restarts: Callable[[], int] = lambda: 0
        self.invariant_violations = 0
        self.commits = CommitNumbers()
        self.held = Held()
        self.request_numbers = RequestNumbers()
        self.catalog: CatalogReadings | None = None
        registry.register(self)

    def show_names(self, shows: bool) -> None:
        """Whether comments, names of applications, and those of limited users and databases are shown from now on."""
        self.slow.shows_names = self.limited.shows_names = shows

    def requests(self, command: str, way: str) -> RequestMeter:
        return self.request_numbers.meter(command, way)

    def commit_answered(self, identifier: str, statements: int, seconds: float) -> None:
        """Count one commit command by the name of its document sequence; other commands are ignored."""
        self.commits.answered(identifier, statements, seconds)

    def read_catalog(self, readings: CatalogReadings) -> None:
        """Show these numbers of the catalog from now on."""
        self.catalog = readings

    def collect(self) -> Iterable[Metric]:
        """All metrics with their current values, for the registry."""
        yield from self.request_numbers.collect()
        yield from self.connections.collect()
        yield from self.slow.collect()
        yield from self.limited.collect()
        yield _gauge("tsproxy_ready", "1 if clients can be served, as /readyz says.", float(self.is_ready()))
        limits = GaugeMetricFamily(
            "tsproxy_limit", "Values of settings that limit what other metrics show.", labels=("setting",)
        )
        for setting, value in self.limits.items():
            limits.add_metric((setting,), value)
        yield limits
        yield _gauge("tsproxy_backend_up", "1 if the backend is reachable.", float(self.backend_up))
        yield _counter("tsproxy_embedded_restarts", "Restarts of the embedded mongod.", self.embedded_restarts())
        yield _counter(
            "tsproxy_invariant_violations",
            "Internal errors, such as a bucket that would be wrong and was not written; should be 0.",
            self.invariant_violations,
        )
        yield from self._collect_held()
        if self.catalog is not None:
            yield from self.commits.collect(self.catalog.committer)
            yield from _collect_buckets(self.catalog)
            yield from self.catalog.access.collect()
            yield from self.catalog.peers.collect()

    def _collect_held(self) -> Iterator[Metric]:
        held = HistogramMetricFamily(
            "tsproxy_loop_held_seconds",
            "Delays of a timer of the event loop by computation: how long one client's work delays others.",
        )
        held.add_metric((), list(self.held.cumulative()), self.held.total)
        yield held
        longest = self.held.take_longest_seconds()
        yield _gauge(
            "tsproxy_loop_held_longest_seconds",
            "Longest delay of the event loop by computation since the last scrape.",
            longest,
        )


class ConnectionNumbers:
    """Counters of client connections and their traffic."""

    __slots__ = ("bytes_received", "bytes_sent", "open", "opened", "rejected")

    def __init__(self) -> None:
        self.open = 0
        self.opened = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.rejected = dict.fromkeys(REJECTIONS, 0)

    def accept(self) -> None:
        """Count an accepted client."""
        self.open += 1
        self.opened += 1

    def close(self) -> None:
        """Count the end of an accepted client."""
        self.open -= 1

    def reject(self, reason: str) -> None:
        """Count a rejected client; ``reason`` is one of ``REJECTIONS``."""
        self.rejected[reason] += 1

    def collect(self) -> Iterator[Metric]:
        """The metrics with their current values."""
        yield _gauge("tsproxy_connections_open", "Clients currently connected.", self.open)
        yield _counter("tsproxy_connections", "Clients that have connected since the start.", self.opened)
        rejected = CounterMetricFamily(
            "tsproxy_connections_rejected", "Client connections that were rejected.", labels=("reason",)
        )
        for reason, count in list(self.rejected.items()):
            rejected.add_metric((reason,), count)
        yield rejected
        yield _counter("tsproxy_received_bytes", "Bytes received from clients.", self.bytes_received)
        yield _counter("tsproxy_sent_bytes", "Bytes sent to clients.", self.bytes_sent)


def _collect_buckets(catalog: CatalogReadings) -> Iterator[Metric]:
    gauges = catalog.gauges()
    yield _gauge("tsproxy_open_buckets", "Buckets in memory that accept measurements.", gauges["numOpenBuckets"])
    yield _gauge("tsproxy_idle_buckets", "Open buckets without pending measurements.", gauges["numIdleBuckets"])
    yield _gauge("tsproxy_catalog_memory_bytes", "Memory used by open buckets.", gauges["memoryUsage"])
    yield _gauge(
        "tsproxy_grows_in_parts",
        "1 if buckets may grow in parts, 0 if they grow in place.",
        float(catalog.grows_in_parts()),
    )
    yield _gauge(
        "tsproxy_unjoined_parts",
        "Parts that are not joined yet; rises under full load and falls after it.",
        catalog.unjoined(),
    )
    yield _counter("tsproxy_joined_parts", "Parts that were joined.", catalog.joined())
    yield _counter("tsproxy_joins_put_off", "Joins postponed because of active readers.", catalog.joins_put_off())
    measurements, size_bytes = catalog.uncommitted()
    yield _gauge(
        "tsproxy_uncommitted_measurements",
        "Measurements that are not committed yet, including those in the reserve.",
        measurements,
    )
    yield _gauge("tsproxy_uncommitted_bytes", "Size of the measurements that are not committed yet.", size_bytes)
    measurements, size_bytes = catalog.pursued()
    yield _gauge(
        "tsproxy_pursued_measurements",
        "Measurements of retryable writes that were sent and may be stored, and are sent again until this is known.",
        measurements,
    )
    yield _gauge(
        "tsproxy_pursued_bytes", "Size of the writes that are sent again until their outcome is known.", size_bytes
    )
    yield _counter(
        "tsproxy_native_measurements",
        "Measurements of inserts that were relayed because the backend stores them faster.",
        catalog.native(),
    )
    counters = catalog.counters()
    committed = SummaryMetricFamily("tsproxy_batch_measurements", "Measurements per committed write batch.")
    committed.add_metric((), counters.numCommits, counters.numMeasurementsCommitted)
    yield committed
    yield _counter("tsproxy_buckets_inserted", "Buckets created.", counters.numBucketInserts)
    yield _counter("tsproxy_buckets_updated", "Updates of stored buckets.", counters.numBucketUpdates)
    yield _counter(
        "tsproxy_buckets_reopened", "Stored buckets reopened for late measurements.", counters.numBucketsReopened
    )
    yield _counter("tsproxy_batch_waits", "Writes that waited for a commit already in progress.", counters.numWaits)
    yield from _collect_compression(catalog, counters)
    rollovers = CounterMetricFamily("tsproxy_rollovers", "Buckets closed or archived, by reason.", labels=("reason",))
    for reason, name in CLOSED_COUNTERS.items():
        rollovers.add_metric((reason.name.lower(),), getattr(counters, name))
    yield rollovers


def _collect_compression(catalog: CatalogReadings, counters: Counters) -> Iterator[Metric]:
    yield _counter("tsproxy_compressed_buckets", "Buckets that were compressed.", counters.numCompressedBuckets)
    plain = CounterMetricFamily(
        "tsproxy_uncompressed_buckets", "Closed buckets that stay uncompressed, by reason.", labels=("reason",)
    )
    for reason, count in catalog.uncompressed().items():
        plain.add_metric((reason,), count)
    yield plain
    # Attempts without a smaller form count with equal sizes in both (W81).
    size_bytes = CounterMetricFamily(
        "tsproxy_compression_bytes", "Size of buckets before and after their compression.", labels=("form",)
    )
    size_bytes.add_metric(("before",), counters.numBytesUncompressed)
    size_bytes.add_metric(("after",), counters.numBytesCompressed)
    yield size_bytes
    yield _counter(
        "tsproxy_compression_seconds",
        "CPU time of compression and of the comparison with the stored bucket.",
        catalog.compression_seconds(),
    )


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
