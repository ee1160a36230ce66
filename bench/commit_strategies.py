"""What whole strategies of committing cost the server, when each of many series gets one row a round.

``python -m bench.commit_strategies``: appending until a bucket has a number of rows, or opening one-row buckets and
putting them together later; for comparison single inserts into a native collection. Processor time of the mongod.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import bson
import click
from bson import ObjectId

from bench.commit_cost import DATABASE, FORMS, GUARDS, Bench, bucket_document
from bench.generator import OUT
from bench.messages import op_msg
from bench.processes import Mongod

SERIES = 128
ROUNDS = 200
GUARD = "version, not closed, rows"
DELETED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Strategy:
    """``run`` commits ``ROUNDS`` rounds into a bucket collection."""

    name: str
    run: Callable[[Bench, str, str], None]


def _insert(bench: Bench, name: str, ids: Sequence[ObjectId], shape: str, rows: int) -> None:
    document = bson.encode(bucket_document(ids[0], shape, rows))
    documents = [document.replace(ids[0].binary, one.binary, 1) for one in ids]
    bench.commit("insert", name, documents, bypass=True)()


def append_until(max_rows: int, form: str) -> Strategy:
    """One open bucket for each series, to which rows are appended until it has ``max_rows``."""

    def run(bench: Bench, name: str, shape: str) -> None:
        ids: list[ObjectId] = []
        for number in range(ROUNDS):
            row = number % max_rows
            if row == 0:
                ids = bench.new_ids(SERIES)
                _insert(bench, name, ids, shape, 1)
                continue
            guard, update = GUARDS[GUARD](shape, row), FORMS[form](shape, row, 1)
            statements = [bson.encode({"q": {"_id": one, **guard}, "u": update}) for one in ids]
            bench.commit("update", name, statements)()

    return Strategy(f"append by {form}, {max_rows} rows a bucket", run)


def compact_every(rows: int, *, atomic: bool) -> Strategy:
    """A one-row bucket for each row; after ``rows`` of a series they are replaced by one bucket.

    ``atomic``: by one ``applyOps`` a series, else by an insert of the large buckets and a delete of the small ones.
    """

    def run(bench: Bench, name: str, shape: str) -> None:
        small: list[list[ObjectId]] = []
        for _ in range(ROUNDS):
            small.append(bench.new_ids(SERIES))
            _insert(bench, name, small[-1], shape, 1)
            if len(small) == rows:
                (_replace_at_once if atomic else _replace)(bench, name, shape, small)
                small = []

    how = "applyOps" if atomic else "insert, then delete"
    return Strategy(f"one-row buckets, put together every {rows} rows by {how}", run)


def _replace(bench: Bench, name: str, shape: str, small: Sequence[Sequence[ObjectId]]) -> None:
    _insert(bench, name, bench.new_ids(SERIES), shape, len(small))
    ids = sorted(one for members in small for one in members)
    for start in range(0, len(ids), DELETED_AT_ONCE):
        part = ids[start : start + DELETED_AT_ONCE]
        body = {"delete": name, "deletes": [{"q": {"_id": {"$in": part}}, "limit": 0}], "$db": DATABASE}
        bench.send(op_msg(bson.encode(body)))


def _replace_at_once(bench: Bench, name: str, shape: str, small: Sequence[Sequence[ObjectId]]) -> None:
    namespace = f"{DATABASE}.{name}"
    for series in range(SERIES):
        document = bucket_document(bench.new_ids(1)[0], shape, len(small))
        operations = [{"op": "d", "ns": namespace, "o": {"_id": members[series]}} for members in small]
        operations.append({"op": "i", "ns": namespace, "o": document})
        bench.send(op_msg(bson.encode({"applyOps": operations, "$db": DATABASE})))


STRATEGIES = (
    append_until(200, "$set"),
    append_until(50, "$set"),
    append_until(20, "replacement"),
    append_until(10, "replacement"),
    compact_every(25, atomic=False),
    compact_every(100, atomic=False),
    compact_every(200, atomic=False),
    compact_every(100, atomic=True),
)


def measure(bench: Bench, strategy: Strategy, shape: str, repeat: int) -> list[float]:
    """µs for each measurement, of each repeat; the checkpoint that writes it all out is counted too."""
    figures = []
    for _ in range(repeat):
        with bench.collection("native", shape) as name:
            before = bench.cpu_us()
            strategy.run(bench, name, shape)
            bench.client.admin.command("fsync")
            figures.append((bench.cpu_us() - before) / (SERIES * ROUNDS))
    return figures


@click.command()
@click.option("--repeat", default=3, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=OUT / "commit_strategies.json", show_default=True)
def main(repeat: int, out: Path) -> None:
    """Measure the strategies."""
    found = []
    with tempfile.TemporaryDirectory(prefix="tsproxy-bench-") as directory:
        mongod = Mongod(Path(directory), None, 1.0).start()
        try:
            bench = Bench(mongod.port)
            for shape in ("iot", "cpu"):
                for strategy in STRATEGIES:
                    figures = measure(bench, strategy, shape, repeat)
                    found.append({"strategy": strategy.name, "shape": shape, "us_per_measurement": figures})
                    click.echo(f"{shape} {statistics.median(figures):7.1f} µs  {strategy.name}")
        finally:
            mongod.stop()
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
