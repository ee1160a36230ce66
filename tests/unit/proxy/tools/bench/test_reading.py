from __future__ import annotations

from itertools import count

from proxy.tools.bench.reading import LATEST_ROWS, Reader
from proxy.tools.bench.shapes import shape_of
from proxy.tools.bench.workers import connect
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port

SHAPE = shape_of("iot")


def run(reader: Reader, times: int) -> None:
    passed = count()
    reader.run(lambda: next(passed) >= times)


def test_both_kinds_of_reads_are_counted(mongod: MongodProcess, db_name: str) -> None:
    database = mongod.shared_client[db_name]
    database.create_collection("rows", timeseries={"timeField": "t", "metaField": "device"})
    row = SHAPE.rows()
    database.rows.insert_many([row(series, tick) for series in range(3) for tick in range(LATEST_ROWS + 5)])
    mongod.shared_client[db_name].command("profile", 2)
    reader = Reader(database.rows, SHAPE, 3, 0)
    run(reader, 6)
    database.command("profile", 0)
    assert (reader.tally.reads, reader.tally.reading.counts.total(), reader.tally.errors) == (6, 6, {})
    profiled = [each["command"] for each in database["system.profile"].find({"op": {"$in": ["query", "command"]}})]
    assert sum(each.get("limit") == LATEST_ROWS for each in profiled) >= 3


def test_failed_reads_are_errors() -> None:
    with connect(f"mongodb://{LOOPBACK}:{free_port()}/?serverSelectionTimeoutMS=20") as client:
        reader = Reader(client.db.rows, SHAPE, 3, 0)
        run(reader, 2)
    assert reader.tally.errors == {"read: ServerSelectionTimeoutError": 2}
    assert reader.tally.reads == 0
