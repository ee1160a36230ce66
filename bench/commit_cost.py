"""What a commit costs the server: appending rows to N buckets, against opening N new ones.

By the buckets' size, the number of statements in a bulk, the form of the update and its guard.
Run it with ``python -m bench.commit_cost``. It measures processor time of the mongod (user and system, from
``serverStatus``), so neither the sender's speed nor other programs on the machine matter much.
"""

from __future__ import annotations

import datetime as dt
import json
import socket
import statistics
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bson
import click
import pymongo
from bson import ObjectId

from bench.documents import BASE_MS, CPU_METRICS
from bench.generator import OUT
from bench.messages import op_msg
from bench.processes import Mongod

Document = dict[str, Any]
DATABASE = "commit_cost"
TIME_FIELD = "time"
FIELDS: Mapping[str, tuple[str, ...]] = {
    "iot": ("temperature", "humidity"),
    "cpu": tuple(f"usage_{metric}" for metric in CPU_METRICS),
}
METAS: Mapping[str, Any] = {
    "iot": "dev-0000001",
    "cpu": {"arch": "x86", "datacenter": "eu-central-1a", "hostname": "host_0000001", "os": "Ubuntu15.10", "rack": "6"},
}
STATEMENTS = 4096
"""Sent for each figure, in bulks of N."""


def _time(row: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(BASE_MS / 1000 + row, dt.UTC)


def _values(shape: str, row: int) -> Document:
    fields = {name: float((row * 7 + index * 13) % 101) for index, name in enumerate(FIELDS[shape])}
    return {TIME_FIELD: _time(row), "_id": ObjectId(struct.pack(">IQ", 1, row)), **fields}


def bucket_document(bucket_id: ObjectId, shape: str, rows: int) -> Document:
    """An uncompressed bucket (W3) with this number of rows."""
    measurements = [_values(shape, row) for row in range(rows)]
    names = measurements[0].keys()
    columns = {name: {str(row): m[name] for row, m in enumerate(measurements)} for name in names}
    low = {name: min(m[name] for m in measurements) for name in names}
    high = {name: max(m[name] for m in measurements) for name in names}
    control = {"version": 1, "min": low, "max": high}
    return {"_id": bucket_id, "control": control, "meta": METAS[shape], "data": columns}


# --- guards and forms of an append ------------------------------------------------------------------------------


def _guard_nothing(shape: str, row: int) -> Document:
    return {}


def _guard_row(shape: str, row: int) -> Document:
    return {f"data.{TIME_FIELD}.{row}": {"$exists": False}}


def _guard_rows(shape: str, row: int) -> Document:
    return {f"data.{TIME_FIELD}.{row - 1}": {"$exists": True}, f"data.{TIME_FIELD}.{row}": {"$exists": False}}


def _guard_version(shape: str, row: int) -> Document:
    return {"control.version": 1, "control.closed": {"$ne": True}}


def _guard_state(shape: str, row: int) -> Document:
    return {**_guard_version(shape, row), **_guard_rows(shape, row)}


def _guard_max(shape: str, row: int) -> Document:
    return {**_guard_version(shape, row), f"control.max.{TIME_FIELD}": _time(row - 1)}


def _guard_size(shape: str, row: int) -> Document:
    count = {"$size": {"$objectToArray": f"$data.{TIME_FIELD}"}}
    return {**_guard_version(shape, row), "$expr": {"$eq": [count, row]}}


def _guard_full(shape: str, row: int) -> Document:
    return {**_guard_state(shape, row), "$expr": {"$eq": ["$meta", {"$literal": METAS[shape]}]}}


GUARDS: Mapping[str, Callable[[str, int], Document]] = {
    "_id only": _guard_nothing,
    "row a absent": _guard_row,
    "row a-1 present, a absent": _guard_rows,
    "version, not closed": _guard_version,
    "version, not closed, max time": _guard_max,
    "version, not closed, rows": _guard_state,
    "version, not closed, row count ($expr $size)": _guard_size,
    "version, not closed, rows, meta ($expr)": _guard_full,
}
STANDARD_GUARD = "version, not closed, rows, meta ($expr)"


def _summaries(added: Sequence[Document]) -> Document:
    """The control fields that change: as a rule the time and the id grow, now and then a value."""
    last = added[-1]
    return {f"control.max.{TIME_FIELD}": last[TIME_FIELD], "control.max._id": last["_id"]}


def form_set(shape: str, row: int, count: int) -> Any:
    """``$set`` of dotted paths (W121)."""
    added = [_values(shape, row + i) for i in range(count)]
    cells = {f"data.{name}.{row + i}": value for i, m in enumerate(added) for name, value in m.items()}
    return {"$set": {**cells, **_summaries(added)}}


def form_pipeline(shape: str, row: int, count: int) -> Any:
    """A pipeline that merges the new rows into each column (W123)."""
    added = [_values(shape, row + i) for i in range(count)]
    cells: Document = {
        name: {"$mergeObjects": [f"$data.{name}", {"$literal": {str(row + i): m[name] for i, m in enumerate(added)}}]}
        for name in added[0]
    }
    last = added[-1]
    return [{"$set": {"data": cells, "control": {"max": {TIME_FIELD: last[TIME_FIELD], "_id": last["_id"]}}}}]


def form_replacement(shape: str, row: int, count: int) -> Any:
    """The whole bucket anew (W124)."""
    document = bucket_document(ObjectId(), shape, row + count)
    del document["_id"]
    return document


FORMS: Mapping[str, Callable[[str, int, int], Any]] = {
    "$set": form_set,
    "pipeline": form_pipeline,
    "replacement": form_replacement,
}


# --- measuring --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figure:
    """Processor time of the mongod for each statement, of ``rows_added`` rows into buckets of ``rows`` rows."""

    what: str
    shape: str
    bulk: int
    rows: int
    rows_added: int
    guard: str
    collection: str
    us_per_statement: float
    spread: float


class Bench:
    """One connection for the commits, one client for looking."""

    def __init__(self, port: int) -> None:
        self.client: pymongo.MongoClient[Document] = pymongo.MongoClient("127.0.0.1", port, directConnection=True)
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ids = 0

    def send(self, message: bytes) -> Document:
        """One request and its reply."""
        self._socket.sendall(message)
        header = self._read(4)
        reply: Document = bson.decode(self._read(struct.unpack("<i", header)[0] - 4)[17:])
        if reply["ok"] != 1 or "writeErrors" in reply:
            raise RuntimeError(f"the server refused a commit: {str(reply)[:500]}")
        return reply

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            parts += self._socket.recv(size - len(parts))
        return bytes(parts)

    def cpu_us(self) -> int:
        """Processor time of the mongod so far."""
        used = self.client.admin.command("serverStatus")["extra_info"]
        return int(used["user_time_us"]) + int(used["system_time_us"])

    def new_ids(self, count: int) -> list[ObjectId]:
        """Bucket ids as W10 wants them."""
        self._ids += count
        return [ObjectId(struct.pack(">IQ", BASE_MS // 1000, self._ids - i)) for i in range(count)]

    @contextmanager
    def collection(self, kind: str, shape: str) -> Iterator[str]:
        """An empty bucket collection: ``native``, or ``plain`` (no validator, not clustered)."""
        database = self.client[DATABASE]
        self.client.drop_database(DATABASE)
        if kind == "native":
            database.create_collection(shape, timeseries={"timeField": TIME_FIELD, "metaField": "meta"})
            yield f"system.buckets.{shape}"
        else:
            database.create_collection(shape)
            yield shape
        self.client.drop_database(DATABASE)

    def commit(
        self, name: str, collection: str, statements: Sequence[bytes], *, bypass: bool = False
    ) -> Callable[[], Document]:
        """A prepared bulk ``insert`` or ``update``."""
        body: Document = {name: collection, "ordered": False, "$db": DATABASE}
        if bypass:
            body["bypassDocumentValidation"] = True
        identifier = "documents" if name == "insert" else "updates"
        message = op_msg(bson.encode(body), identifier, b"".join(statements))
        return lambda: self.send(message)

    def timed(self, commits: Sequence[Callable[[], Document]], matched: int) -> float:
        """µs of processor time for each statement."""
        before = self.cpu_us()
        total = sum(commit()["n"] for commit in commits)
        used = self.cpu_us() - before
        if total != matched:
            raise RuntimeError(f"{total} of {matched} statements applied")
        return used / matched


def _bulks(statements: Sequence[bytes], bulk: int) -> list[Sequence[bytes]]:
    return [statements[start : start + bulk] for start in range(0, len(statements), bulk)]


@dataclass(frozen=True, slots=True)
class Append:
    """One measured kind of append."""

    shape: str
    bulk: int
    rows: int
    rows_added: int = 1
    form: str = "$set"
    guard: str = STANDARD_GUARD
    kind: str = "native"
    bypass: bool = False


def measure_append(bench: Bench, case: Append, repeat: int, statements: int = STATEMENTS) -> Figure:
    """Fill buckets, then append ``repeat`` times one portion of rows to each."""
    buckets = min(statements, 512)
    portions = statements // buckets
    figures = []
    with bench.collection(case.kind, case.shape) as name:
        ids = bench.new_ids(buckets)
        first_row = max(1, case.rows - portions * repeat * case.rows_added // 2)
        document = bson.encode(bucket_document(ids[0], case.shape, first_row))
        documents = [document.replace(ids[0].binary, one.binary, 1) for one in ids]
        for part in _bulks(documents, 64):
            bench.commit("insert", name, part, bypass=True)()
        row = first_row
        for _ in range(repeat):
            commits = []
            for _ in range(portions):
                update = FORMS[case.form](case.shape, row, case.rows_added)
                guard = GUARDS[case.guard](case.shape, row)
                encoded = [bson.encode({"q": {"_id": one, **guard}, "u": update}) for one in ids]
                commits += [
                    bench.commit("update", name, part, bypass=case.bypass) for part in _bulks(encoded, case.bulk)
                ]
                row += case.rows_added
            figures.append(bench.timed(commits, buckets * portions))
    kind = case.kind + (", validation bypassed" if case.bypass else "")
    return _figure(case.form, case, kind, figures)


def measure_open(bench: Bench, case: Append, repeat: int, statements: int = STATEMENTS) -> Figure:
    """Insert new buckets of ``rows_added`` rows."""
    figures = []
    with bench.collection(case.kind, case.shape) as name:
        for _ in range(repeat):
            ids = bench.new_ids(statements)
            document = bson.encode(bucket_document(ids[0], case.shape, case.rows_added))
            encoded = [document.replace(ids[0].binary, one.binary, 1) for one in ids]
            commits = [bench.commit("insert", name, part, bypass=case.bypass) for part in _bulks(encoded, case.bulk)]
            figures.append(bench.timed(commits, statements))
    kind = case.kind + (", validation bypassed" if case.bypass else "")
    return _figure("insert", case, kind, figures)


def _figure(what: str, case: Append, kind: str, figures: Sequence[float]) -> Figure:
    median = statistics.median(figures)
    spread = (max(figures) - min(figures)) / median
    guard = "" if what == "insert" else case.guard
    rows = 0 if what == "insert" else case.rows
    return Figure(what, case.shape, case.bulk, rows, case.rows_added, guard, kind, median, spread)


def all_figures(bench: Bench, repeat: int) -> Iterator[Figure]:
    """The curve, the guards, the forms, the kinds of collection."""
    for shape in FIELDS:
        for bulk in (1, 16, 128, 512):
            yield measure_open(bench, Append(shape, bulk, 0), repeat)
            for rows in (1, 100, 500, 1000):
                yield measure_append(bench, Append(shape, bulk, rows), repeat)
    for rows in (1, 500):
        for guard in GUARDS:
            yield measure_append(bench, Append("iot", 128, rows, guard=guard), repeat)
    for kind, bypass in (("native", False), ("native", True), ("plain", False)):
        yield measure_open(bench, Append("iot", 128, 0, kind=kind, bypass=bypass), repeat)
        for rows in (1, 100, 500):
            yield measure_append(bench, Append("iot", 128, rows, kind=kind, bypass=bypass), repeat)
    for rows_added in (1, 10, 100):
        yield measure_open(bench, Append("iot", 128, 0, rows_added), repeat, 1024)
        for rows in (100, 500):
            for form in FORMS:
                yield measure_append(bench, Append("iot", 128, rows, rows_added, form, bypass=False), repeat, 512)


@click.command()
@click.option("--repeat", default=3, show_default=True)
@click.option("--port", default=0, help="Of a mongod on this machine; by default one is started.")
@click.option("--out", type=click.Path(path_type=Path), default=OUT / "commit_cost.json", show_default=True)
def main(repeat: int, port: int, out: Path) -> None:
    """Measure what appends and new buckets cost the server."""
    figures = []
    with tempfile.TemporaryDirectory(prefix="tsproxy-bench-") as directory:
        mongod = None if port else Mongod(Path(directory), None, 1.0).start()
        try:
            bench = Bench(port or (mongod.port if mongod else 0))
            for figure in all_figures(bench, repeat):
                figures.append(figure)
                click.echo(
                    f"{figure.what:<12} {figure.shape} bulk {figure.bulk:>4} rows {figure.rows:>5} "
                    f"+{figure.rows_added:<4} {figure.us_per_statement:8.1f} µs ±{figure.spread:4.0%}  "
                    f"{figure.collection}  {figure.guard}"
                )
        finally:
            if mongod:
                mongod.stop()
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps([{name: getattr(f, name) for name in Figure.__slots__} for f in figures], indent=1))


if __name__ == "__main__":
    main()
