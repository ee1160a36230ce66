"""Q: queries on a loaded set, those of the Time Series Benchmark Suite's devops case that fit, and others."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench import generator
from bench.context import Context, attempt, interleaved
from bench.documents import BASE_MS, CPU, CPU_METRICS
from bench.generator import Load, LoadFailed, LoadResult
from bench.messages import command_template, get_more_template, insert_template
from bench.results import Sample
from bench.settling import wait_until_compressed
from bench.targets import Collection, Target, fresh_collection

HOSTS = 100
STEP_MS = 10_000
BATCH = 1000
HOST = "tags.hostname"
Command = dict[str, Any]


def host(number: int) -> str:
    """The name that the generator gives this series."""
    return f"host_{number:07d}"


@dataclass(frozen=True, slots=True)
class Query:
    """A command without its collection's name: the first key's value is filled in."""

    name: str
    command: Command


class TimeLine:
    """The times of the loaded set. An hour of the suite's queries is a 27th of it when it is shorter than 27 hours."""

    def __init__(self, measurements: int) -> None:
        self.start = dt.datetime.fromtimestamp(BASE_MS / 1000, dt.UTC)
        seconds = measurements / HOSTS * STEP_MS / 1000
        self.hour = dt.timedelta(seconds=min(3600, seconds / 27))

    def window(self, first_hour: float, hours: float) -> dict[str, dt.datetime]:
        """A range of times."""
        first = self.start + self.hour * first_hour
        return {"$gte": first, "$lt": first + self.hour * hours}


def _aggregate(*stages: Command) -> Command:
    return {"aggregate": "", "pipeline": list(stages), "cursor": {}, "allowDiskUse": True}


def _truncated(unit: str) -> Command:
    return {"$dateTrunc": {"date": "$time", "unit": unit}}


def _single_groupby(times: TimeLine, metrics: int, hosts: int, hours: int) -> Query:
    names = [f"usage_{metric}" for metric in CPU_METRICS[:metrics]]
    match = {HOST: {"$in": [host(number * 7) for number in range(hosts)]}, "time": times.window(3, hours)}
    group = {"_id": _truncated("minute"), **{f"max_{name}": {"$max": f"${name}"} for name in names}}
    pipeline = _aggregate({"$match": match}, {"$group": group}, {"$sort": {"_id": 1}})
    return Query(f"single-groupby-{metrics}-{hosts}-{hours}", pipeline)


def _double_groupby(times: TimeLine, metrics: int) -> Query:
    names = [f"usage_{metric}" for metric in CPU_METRICS[:metrics]]
    key = {"host": f"${HOST}", "hour": _truncated("hour")}
    group = {"_id": key, **{f"avg_{name}": {"$avg": f"${name}"} for name in names}}
    return Query(f"double-groupby-{metrics}", _aggregate({"$match": {"time": times.window(6, 12)}}, {"$group": group}))


def _cpu_max_all(times: TimeLine, hosts: int) -> Query:
    match = {HOST: {"$in": [host(number * 11) for number in range(hosts)]}, "time": times.window(8, 8)}
    group = {"_id": _truncated("hour"), **{m: {"$max": f"$usage_{m}"} for m in CPU_METRICS}}
    return Query(f"cpu-max-all-{hosts}", _aggregate({"$match": match}, {"$group": group}, {"$sort": {"_id": 1}}))


def _high_cpu(times: TimeLine, hosts: int) -> Query:
    match: Command = {"time": times.window(6, 12), "usage_user": {"$gt": 90.0}}
    if hosts:
        match[HOST] = {"$in": [host(number * 13) for number in range(hosts)]}
    return Query(f"high-cpu-{hosts or 'all'}", {"find": "", "filter": match})


def _last_point() -> Query:
    newest = {"$group": {"_id": f"${HOST}", "last": {"$first": "$usage_user"}, "time": {"$first": "$time"}}}
    return Query("lastpoint", _aggregate({"$sort": {HOST: 1, "time": -1}}, newest))


def _groupby_orderby_limit(times: TimeLine) -> Query:
    group = {"_id": _truncated("minute"), "max": {"$max": "$usage_user"}}
    before = {"time": {"$lt": times.start + times.hour * 20}}
    stages = ({"$match": before}, {"$group": group}, {"$sort": {"_id": -1}}, {"$limit": 5})
    return Query("groupby-orderby-limit", _aggregate(*stages))


def all_queries(measurements: int) -> list[Query]:
    """What is measured."""
    times = TimeLine(measurements)
    by_meta = {"_id": f"${HOST}", "count": {"$sum": 1}, "max": {"$max": "$usage_user"}, "min": {"$min": "$usage_user"}}
    one_series = {HOST: host(42), "time": times.window(10, 2)}
    return [
        _single_groupby(times, 1, 1, 1),
        _single_groupby(times, 5, 8, 1),
        _single_groupby(times, 5, 1, 12),
        _cpu_max_all(times, 1),
        _cpu_max_all(times, 8),
        _double_groupby(times, 1),
        _double_groupby(times, 10),
        _high_cpu(times, 1),
        _high_cpu(times, 0),
        _last_point(),
        _groupby_orderby_limit(times),
        Query("group by meta", _aggregate({"$group": by_meta})),
        Query("range of one series", {"find": "", "filter": {HOST: host(42), "time": times.window(10, 1)}}),
        Query("sorted range", {"find": "", "filter": one_series, "sort": {"time": 1}}),
        Query("measurement predicate", {"find": "", "filter": {"usage_idle": {"$gte": 98.0}}, "limit": 1000}),
        Query("count all", {"count": ""}),
        Query("count of a series", {"count": "", "query": {HOST: host(7)}}),
        Query("distinct meta", {"distinct": "", "key": HOST}),
        Query("drain 100000", {"find": "", "filter": {}, "limit": min(100_000, measurements)}),
    ]


def _load_for(collection: Collection, query: Query, port: int, **options: Any) -> Load:
    name = next(iter(query.command))
    command = {**query.command, name: collection.name}
    return Load(
        port,
        command_template(collection.database, command),
        get_more=get_more_template(collection.database, collection.name),
        **options,
    )


class Queries:
    """Q."""

    name = "Q"

    def _chosen(self, context: Context) -> list[Query]:
        return [query for query in all_queries(context.settings.measurements) if context.settings.cases in query.name]

    def rounds(self, context: Context) -> int:
        """Samples to come; loading each target is one more."""
        targets = len(context.site.targets())
        return context.rounds(len(self._chosen(context)), targets) + targets

    def run(self, context: Context) -> Iterator[Sample]:
        """Load every target, then all queries."""
        targets = context.site.targets()
        with ExitStack() as stack:
            collections = {}
            for target in targets:
                collections[target.name] = stack.enter_context(fresh_collection(target, CPU))
                fill = partial(self._fill, context, collections[target.name])
                yield attempt(self.name, "loading", target.name, 0, fill)

            returned: dict[str, float] = {}

            def measure(context: Context, query: Query, target: Target) -> Mapping[str, float]:
                metrics = self._measure(context, query, collections[target.name])
                if metrics["documents"] != returned.setdefault(query.name, metrics["documents"]):
                    told = (
                        f"{metrics['documents']:g} documents where the first target returned {returned[query.name]:g}"
                    )
                    raise LoadFailed(told)
                return metrics

            yield from interleaved(self.name, context, self._chosen(context), targets, measure)

    def _fill(self, context: Context, collection: Collection) -> Mapping[str, float]:
        context.say(f"Q loading {collection.target.name}")
        with collection.target.client() as client:
            client[collection.database][collection.name].create_index({HOST: 1, "time": 1})
        result = filled(collection, context.settings.measurements)
        if collection.target.through_proxy and not context.settings.smoke:
            wait_until_compressed(context.site, collection.database)
        return {"load_per_s": result.rate, "storage_mb": stored_bytes(context, [collection.database]) / 1e6}

    def _measure(self, context: Context, query: Query, collection: Collection) -> Mapping[str, float]:
        port = collection.target.port
        first = generator.run(_load_for(collection, query, port, operations=1))
        pids = context.site.pids()
        seconds = min(0.7, context.settings.seconds)
        result = generator.run(_load_for(collection, query, port, seconds=seconds, account=pids))
        return {"median_ms": result.latency_us["p50"] / 1000, "documents": float(first.reply_documents)}


def filled(collection: Collection, measurements: int) -> LoadResult:
    """Insert this number of measurements of all hosts, in batches."""
    batch = min(BATCH, measurements)
    template = insert_template(collection.database, collection.name, CPU, batch, ordered=False)
    options = {"series": HOSTS, "step_ms": STEP_MS, "operations": measurements // batch, "expect_n": batch}
    return generator.run(Load(collection.target.port, template, **options))  # type: ignore[arg-type]


def stored_bytes(context: Context, databases: Sequence[str]) -> float:
    """What these databases' collections take on disk after a checkpoint, indexes left out."""
    client = context.site.direct
    client.admin.command("fsync")
    total = 0.0
    for name in databases:
        for collection in client[name].list_collections():
            if collection["type"] == "collection" and collection["name"] != "system.views":
                total += client[name].command("collStats", collection["name"])["storageSize"]
    return total
