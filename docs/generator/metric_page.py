"""The page of metrics, from what ``proxy/observe`` exports."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from catalog.background.compressing import REASONS
from catalog.buckets.stats import Counters
from docs.generator.markdown import code, page, table
from proxy.observe.metrics import LIMITS, CatalogReadings, Metrics
from proxy.observe.process_metrics import ProcessMetrics
from proxy.observe.trace_numbers import TraceNumbers
from proxy.process.workers.overview import of_workers

_INTRODUCTION = """
Served as Prometheus text on [`status_listen`](settings.md#status_listen), path `/metrics`. Counters and sums are since
the start of the process. What to watch, and the alerts: [Operating](../operating.md#monitoring). Names are as they are
scraped: a histogram has `_bucket`, `_sum` and `_count`, a summary `_sum` and `_count`. Labels without values here have
those of the load.
"""
_WORKERS = """
With several [workers](../operating.md#metrics-of-workers).
"""
_PROCESS = """
The standard metrics of Prometheus clients for the process; they have no labels.
"""


class _CommitterNumbers:
    rounds = commands = statements = unknown_outcomes = failures = 0


def families() -> list[Metric]:
    """Every metric of the proxy, in the order of a scrape."""
    metrics = Metrics(CollectorRegistry(), dict.fromkeys(LIMITS, 0))
    gauges = dict.fromkeys(("numOpenBuckets", "numIdleBuckets", "memoryUsage", "numBuckets"), 0)
    uncompressed = dict.fromkeys(REASONS, 0)
    readings = CatalogReadings(Counters, lambda: gauges, _CommitterNumbers(), uncompressed=lambda: uncompressed)
    metrics.read_catalog(readings)
    metrics.requests("", "")
    return [*metrics.collect(), *TraceNumbers(CollectorRegistry()).collect()]


def families_of_workers() -> list[Metric]:
    """Those that only a proxy with several workers has."""
    return list(of_workers(2, (), 0))


def _row(family: Metric) -> list[str]:
    name = family.name + ("_total" if family.type == "counter" else "")
    labels = "; ".join(_label(family, label) for label in getattr(family, "_labelnames", ()))
    return [code(name), family.type, labels, family.documentation]


def _label(family: Metric, label: str) -> str:
    """A label with its values, if there are only a few that are known in advance."""
    values = dict.fromkeys(value for sample in family.samples if (value := sample.labels.get(label)))
    return code(label) + (f": {', '.join(values)}" if values else "")


def _process_families() -> list[Metric]:
    return list(ProcessMetrics(CollectorRegistry()).collect())


def metric_page() -> str:
    """The whole page."""
    heads = ["metric", "type", "labels", "meaning"]
    return "\n".join(
        [
            page("Metrics", "proxy/observe", _INTRODUCTION),
            table(heads, map(_row, families())),
            "## Workers\n",
            _WORKERS.strip() + "\n",
            table(heads, map(_row, families_of_workers())),
            "## The process\n",
            _PROCESS.strip() + "\n",
            table(["metric", "type", "meaning"], [[row[0], row[1], row[3]] for row in map(_row, _process_families())]),
        ]
    )
