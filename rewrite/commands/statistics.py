"""``collStats`` and ``serverStatus`` with the counters of the proxy's own bucket catalog (W80, W82).

The backend reports what it stores, and counts only inserts that bypassed the proxy; the proxy adds its own numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from catalog.namespaces import VirtualCollection
from rewrite.plan import Document, PassThrough, Plan, Request, Rewriter, Single, Step

MEASUREMENTS = "numMeasurementsCommitted"
COMMITS = "numCommits"
AVERAGE = "avgNumMeasurementsPerCommit"
CATALOG_SECTION = "bucketCatalog"
PROXY_SECTION = "tsproxy"
NATIVE_COUNTERS = (
    "numBucketInserts",
    "numBucketUpdates",
    "numBucketsOpenedDueToMetadata",
    "numBucketsClosedDueToCount",
    "numBucketsClosedDueToSchemaChange",
    "numBucketsClosedDueToSize",
    "numBucketsClosedDueToTimeForward",
    "numBucketsClosedDueToTimeBackward",
    "numBucketsClosedDueToMemoryThreshold",
    "numCommits",
    "numWaits",
    "numMeasurementsCommitted",
)
"""The counters that a server reports even if they are zero, in its order (W80)."""


def merge_counters(reported: Mapping[str, Any], counters: Mapping[str, int]) -> Document:
    """The backend's section plus the proxy's numbers: its fields in its order, then those that only the proxy has.

    The average follows from the sums and is absent without commits. Counters that the backend does not know
    (those of newer servers, W83) appear once they are not zero.
    """
    return dict(_merged(reported, counters))


def _merged(reported: Mapping[str, Any], counters: Mapping[str, int]) -> Iterator[tuple[str, Any]]:
    commits = int(reported.get(COMMITS, 0)) + counters.get(COMMITS, 0)
    measurements = int(reported.get(MEASUREMENTS, 0)) + counters.get(MEASUREMENTS, 0)
    for name, value in reported.items():
        if name == AVERAGE:
            continue
        yield name, value + counters[name] if name in counters else value
        if name == MEASUREMENTS and commits:
            yield AVERAGE, measurements // commits
    for name, ours in counters.items():
        if name not in reported and name != AVERAGE and ours:
            yield name, ours


def merge_storage_statistics(reply: Document, counters: Mapping[str, int]) -> Document:
    """Changes the ``timeseries`` part of ``collStats`` or ``$collStats.storageStats``; other replies are unchanged."""
    section = reply.get("timeseries")
    if not isinstance(section, Mapping):
        return reply
    return {**reply, "timeseries": merge_counters(section, counters)}


def merge_collection_statistics(document: Document, counters: Mapping[str, int]) -> Document:
    """One document of the ``$collStats`` stage (C23)."""
    storage = document.get("storageStats")
    if not isinstance(storage, Mapping):
        return document
    return {**document, "storageStats": merge_storage_statistics(dict(storage), counters)}


def is_collection_statistics(pipeline: Any) -> bool:
    """Whether a pipeline begins with ``$collStats`` and requests the catalog's counters."""
    first = pipeline[0] if isinstance(pipeline, list) and pipeline else None
    stage = first.get("$collStats") if isinstance(first, Mapping) else None
    return isinstance(stage, Mapping) and "storageStats" in stage


def rewrite_collection_statistics(request: Request, target: VirtualCollection) -> Plan:
    """``$collStats`` with the proxy's counters; the result always fits into the cursor's first batch."""
    counters = request.catalog_stats(target.namespace)

    def reshape(reply: Document) -> Document:
        cursor = reply.get("cursor")
        if not isinstance(cursor, Mapping):
            return reply
        batch = [merge_collection_statistics(document, counters) for document in cursor.get("firstBatch", ())]
        return {**reply, "cursor": {**cursor, "firstBatch": batch}}

    return Single(Step(request.namespace.database, request.body), reshape)


def merge_server_status(reply: Document, counters: Mapping[str, int], asked: Mapping[str, Any]) -> Document:
    """``serverStatus`` with the ``bucketCatalog`` section, where the server puts it.

    The section is absent before a catalog is used, and if the client excluded it.
    """
    if not asked.get(CATALOG_SECTION, True) or "ok" not in reply:
        return reply
    if CATALOG_SECTION in reply:
        return {**reply, CATALOG_SECTION: merge_counters(reply[CATALOG_SECTION], counters)}
    if not any(counters.values()):
        return reply
    section = merge_counters(_empty_section(counters), counters)
    merged: Document = {}
    for name, value in reply.items():
        if CATALOG_SECTION not in merged and _stands_after_catalog(name):
            merged[CATALOG_SECTION] = section
        merged[name] = value
    return merged


def _empty_section(counters: Mapping[str, int]) -> Document:
    gauges = [name for name in ("numBuckets", "numOpenBuckets", "numIdleBuckets", "memoryUsage") if name in counters]
    return dict.fromkeys((*gauges, *NATIVE_COUNTERS), 0)


_PREAMBLE = frozenset({"host", "version", "process", "pid", "uptime", "uptimeMillis", "uptimeEstimate", "localTime"})


def _stands_after_catalog(section: str) -> bool:
    """Sections come in alphabetical order after a preamble; ``mem`` and ``metrics`` close the reply."""
    return section not in _PREAMBLE and section > CATALOG_SECTION


def _coll_stats(request: Request) -> Plan:
    if request.target is None:
        return PassThrough()
    counters = request.catalog_stats(request.target.namespace)
    step = Step(request.namespace.database, request.body)
    return Single(step, partial(merge_storage_statistics, counters=counters))


def _server_status(request: Request) -> Plan:
    counters = request.catalog_stats(None)
    about = request.about() if request.body.get(PROXY_SECTION, True) else {}
    step = Step(
        request.namespace.database, {name: value for name, value in request.body.items() if name != PROXY_SECTION}
    )

    def reshape(reply: Document) -> Document:
        return with_proxy(merge_server_status(reply, counters, request.body), about)

    return Single(step, reshape)


def _build_info(request: Request) -> Plan:
    return Single(Step(request.namespace.database, request.body), partial(with_proxy, about=request.about()))


def with_proxy(reply: Document, about: Document) -> Document:
    """A successful reply that also says which proxy it came through, after all that the server says itself."""
    if not about or "ok" not in reply:
        return reply
    merged: Document = {}
    for name, value in reply.items():
        if name == "ok":
            merged[PROXY_SECTION] = about
        merged[name] = value
    return merged


STATISTICS: Mapping[str, Rewriter] = {
    "buildInfo": _build_info,
    "buildinfo": _build_info,
    "collStats": _coll_stats,
    "serverStatus": _server_status,
}
