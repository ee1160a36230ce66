"""S: what layouts of the same rows take on disk, and how long two queries take on each."""

from __future__ import annotations

import datetime as dt
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import bson.raw_bson

from bench import generator
from bench.context import Context, attempt
from bench.generator import Load
from bench.messages import command_template, get_more_template
from bench.monitoring import Dimensions, Monitoring, Row
from bench.results import Sample
from bench.settling import wait_until_compressed
from bench.targets import NATIVE, PLAIN, Document, Target

COLLECTION = "rows"
PACK_ROWS = 5_000
"""Rows of a packed document at most, far below 16 MB."""
PACK_SECONDS = 300
"""Span of a packed document at most. It goes over several periods: kept counts would be another thing than rows."""
INSERT_ROWS = 1_000

Pipeline = list[Document]


@dataclass(frozen=True)
class Layout:
    """How rows become documents, and the two queries on them."""

    name: str
    documents: Callable[[Iterator[Row]], Iterator[Document]]
    count_per_period: Pipeline
    totals_per_period: Pipeline
    target: str = PLAIN

    def options(self) -> Document:
        """Of ``create``."""
        if self.target == PLAIN:
            return {}
        return {"timeseries": {"timeField": "timestamp", "metaField": "dimensions"}}


def _moment(seconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


def _one_per_row(rows: Iterator[Row]) -> Iterator[Document]:
    for row in rows:
        values = {"totalCount": row.totalCount, "dProcessTime": row.dProcessTime}
        yield {"timestamp": _moment(row.timestamp), **row.dimensions._asdict(), **values}


def _measurements(rows: Iterator[Row]) -> Iterator[Document]:
    for row in rows:
        yield {
            "timestamp": _moment(row.timestamp),
            "dimensions": row.dimensions._asdict(),
            "totalCount": row.totalCount,
            "dProcessTime": row.dProcessTime,
        }


def _one_per_series_and_day(rows: Iterator[Row]) -> Iterator[Document]:
    series: dict[Dimensions, list[Document]] = {}
    for row in rows:
        entry = {"t": _moment(row.timestamp), "c": row.totalCount, "p": row.dProcessTime}
        series.setdefault(row.dimensions, []).append(entry)
    for dimensions, entries in series.items():
        day = entries[0]["t"].replace(hour=0, minute=0, second=0)
        yield {"day": day, **dimensions._asdict(), "rows": entries}


def _packed(rows: Iterator[Row]) -> Iterator[Document]:
    pending: list[Row] = []
    for row in rows:
        full = len(pending) == PACK_ROWS
        if pending and (full or row.timestamp // PACK_SECONDS != pending[0].timestamp // PACK_SECONDS):
            yield _pack(pending)
            pending = []
        pending.append(row)
    yield _pack(pending)


def _pack(rows: Sequence[Row]) -> Document:
    start = rows[0].timestamp
    return {
        "start": _moment(start),
        "second": [row.timestamp - start for row in rows],
        "iResult": [row.dimensions.iResult for row in rows],
        "vCmdid": [row.dimensions.vCmdid for row in rows],
        "vAppid": [row.dimensions.vAppid for row in rows],
        "totalCount": [row.totalCount for row in rows],
        "dProcessTime": [row.dProcessTime for row in rows],
    }


def _period(path: str | Document) -> Document:
    return {"$dateTrunc": {"date": path, "unit": "minute"}}


def _grouped(period: Any, command: str, total: str, *before: Document) -> Pipeline:
    return [*before, {"$group": {"_id": {"period": period, "vCmdid": command}, "total": {"$sum": total}}}]


def _counted(period: Any, *before: Document) -> Pipeline:
    return [*before, {"$group": {"_id": period, "count": {"$sum": 1}}}]


_UNWIND_ROWS: Document = {"$unwind": "$rows"}
_UNWIND_SECONDS: Document = {"$unwind": "$second"}
_TIME: Document = {"$add": ["$start", {"$multiply": ["$second", 1000]}]}
_ZIP: Document = {"$project": {"start": 1, "row": {"$zip": {"inputs": ["$second", "$vCmdid", "$totalCount"]}}}}
_SPLIT: Document = {
    "$project": {
        "start": 1,
        **{name: {"$arrayElemAt": ["$row", at]} for at, name in enumerate(("second", "c", "n"))},
    }
}


def layouts(*, with_proxy: bool) -> list[Layout]:
    """The three published ones, the database's own, and ours."""
    time_series = (
        _measurements,
        _counted(_period("$timestamp")),
        _grouped(_period("$timestamp"), "$dimensions.vCmdid", "$totalCount"),
    )
    found = [
        Layout(
            "document per row",
            _one_per_row,
            _counted(_period("$timestamp")),
            _grouped(_period("$timestamp"), "$vCmdid", "$totalCount"),
        ),
        Layout(
            "document per series and day",
            _one_per_series_and_day,
            _counted(_period("$rows.t"), _UNWIND_ROWS),
            _grouped(_period("$rows.t"), "$vCmdid", "$rows.c", _UNWIND_ROWS),
        ),
        Layout(
            "packed per span",
            _packed,
            _counted(_period(_TIME), _UNWIND_SECONDS),
            _grouped(_period(_TIME), "$c", "$n", _ZIP, {"$unwind": "$row"}, _SPLIT),
        ),
        Layout(NATIVE, *time_series, target=NATIVE),
    ]
    return [*found, Layout("proxy", *time_series, target="proxy")] if with_proxy else found


class Storage:
    """S."""

    name = "S"

    def _layouts(self, context: Context) -> list[tuple[Layout, Target]]:
        targets = {target.name: target for target in context.site.targets()}
        chosen = layouts(with_proxy="proxy" in targets)
        return [(layout, targets[layout.target]) for layout in chosen]

    def rounds(self, context: Context) -> int:
        """Samples to come: loading, then the queries."""
        return len(self._layouts(context)) * (1 + context.settings.repeat)

    def run(self, context: Context) -> Iterator[Sample]:
        """Load all layouts, then the queries in turns."""
        monitoring = Monitoring(context.settings.scale)
        case = f"scale {context.settings.scale:g}"
        with ExitStack() as stack:
            databases = {}
            for layout, target in self._layouts(context):
                database = f"bench_storage_{secrets.token_hex(4)}"
                stack.callback(context.site.direct.drop_database, database)
                context.say(f"S loading {layout.name}")
                fill = partial(self._fill, context, layout, target, database, monitoring)
                yield attempt(self.name, case, layout.name, 0, fill)
                databases[layout.name] = database
            for repeat in range(context.settings.repeat):
                for layout, target in self._layouts(context):
                    context.say(f"S queries {layout.name}")
                    query = partial(self._query, layout, target, databases[layout.name])
                    yield attempt(self.name, f"{case}, queries", layout.name, repeat, query)

    def _fill(
        self, context: Context, layout: Layout, target: Target, database: str, monitoring: Monitoring
    ) -> dict[str, float]:
        rows = sum(1 for _ in monitoring.rows())
        spent = 0.0
        with target.client() as client:
            client[database].create_collection(COLLECTION, **layout.options())
            for batch in _batches(layout.documents(monitoring.rows())):
                started = time.perf_counter()
                client[database].command("insert", COLLECTION, documents=batch, ordered=False)
                spent += time.perf_counter() - started
        if target.name == "proxy" and not context.settings.smoke:
            wait_until_compressed(context.site, database)
        stored = _on_disk(context, database)
        return {**stored, "bytes_per_row": stored["storage_mb"] * 1e6 / rows, "load_per_s": rows / spent}

    def _query(self, layout: Layout, target: Target, database: str) -> dict[str, float]:
        times = {}
        for name, pipeline in (("count_ms", layout.count_per_period), ("totals_ms", layout.totals_per_period)):
            command = {"aggregate": COLLECTION, "pipeline": pipeline, "cursor": {}, "allowDiskUse": True}
            more = get_more_template(database, COLLECTION)
            load = Load(target.port, command_template(database, command), operations=1, get_more=more)
            times[name] = generator.run(load).latency_us["max"] / 1000
        return times


def _batches(documents: Iterator[Document]) -> Iterator[list[bson.raw_bson.RawBSONDocument]]:
    """Encoded, so that the time of inserting is not that of encoding; a batch ends at 16 MB too."""
    batch: list[bson.raw_bson.RawBSONDocument] = []
    size = 0
    for document in documents:
        raw = bson.raw_bson.RawBSONDocument(bson.encode(document))
        if batch and (len(batch) == INSERT_ROWS or size + len(raw.raw) > 12_000_000):
            yield batch
            batch, size = [], 0
        batch.append(raw)
        size += len(raw.raw)
    if batch:
        yield batch


def _on_disk(context: Context, database: str) -> dict[str, float]:
    """After a checkpoint: collections and their indexes, and apart from it what their files have free for reuse."""
    context.site.direct.admin.command("fsync")
    total = free = 0.0
    for collection in context.site.direct[database].list_collections(filter={"type": "collection"}):
        if collection["name"] == "system.views":
            continue
        sizes = context.site.direct[database].command("collStats", collection["name"])
        total += sizes["storageSize"] + sizes["totalIndexSize"]
        free += sizes["freeStorageSize"]
    return {"storage_mb": (total - free) / 1e6, "free_mb": free / 1e6}
