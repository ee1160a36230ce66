"""What a proxy that was started anew takes for a retry of what an earlier process wrote, and what it does not (W102).

``_id`` is not unique in a time-series collection. Everything is held against a native collection of the same server.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

import bson
from bson import ObjectId
from bson.binary import Binary
from bson.int64 import Int64

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.raw_wire import RawClient
from tests.support.wanted import SERVER

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
Row = dict[str, Any]


class Pair:
    """The collection ``c`` through the proxy, and a native one that gets each statement once."""

    def __init__(self, backend: MongodProcess, proxy: ProxyProcess, database: str) -> None:
        self.proxy = proxy
        self.database = backend.shared_client[database]
        for name in ("c", "native"):
            self.database.create_collection(name, timeseries={"timeField": "t", "metaField": "m"})

    def insert(self, rows: Sequence[Row], session: Binary | None = None, number: int = 1) -> tuple[Binary, int]:
        """A statement of a new session unless another is given; returns what a driver sends again."""
        own = session or Binary(uuid4().bytes, 4)
        self.retry(rows, (own, number))
        self.database.native.insert_many([dict(row) for row in rows])
        return own, number

    def retry(self, rows: Sequence[Row], sent: tuple[Binary, int]) -> None:
        """The statement as a driver repeats it."""
        fields = {"lsid": {"id": sent[0]}, "txnNumber": Int64(sent[1]), "$db": self.database.name}
        with RawClient(self.proxy.port) as client:
            reply = client.run({"insert": "c", "documents": list(rows), **fields})
        assert (reply["ok"], reply["n"]) == (1, len(rows)), reply
        assert "writeErrors" not in reply

    def stored(self, name: str = "c") -> Counter[bytes]:
        """The rows, bit for bit (fields in one order, which buckets do not keep)."""
        return Counter(bson.encode(dict(sorted(row.items()))) for row in self.database[name].find())

    def check(self) -> None:
        assert self.stored() == self.stored("native")


def row(number: int = 0, identity: Any = "device-1", **fields: Any) -> Row:
    return {"t": START + dt.timedelta(milliseconds=number), "m": "a", "_id": identity, "v": number, **fields}


def case_new_sessions_with_an_id_that_is_stored(pair: Pair) -> Iterator[None]:
    for number in range(5):
        pair.insert([row(number)])
    yield
    for number in range(5):
        pair.insert([row(number, v=100)])
        pair.insert([row(10 + number)])
    pair.insert([row(100 + number) for number in range(1000)])
    pair.check()


def case_rows_that_several_statements_made_equal_prove_no_retry(pair: Pair) -> Iterator[None]:
    for _ in range(5):
        pair.insert([row()])
    yield
    for _ in range(5):
        pair.insert([row()])
    pair.insert([row()] * 1000)
    pair.check()


def case_retries_are_not_stored_again(pair: Pair, identity: Any) -> Iterator[None]:
    """Of one row, of many, of equal ones, of a session that has sent others before; in any order."""
    statements = [
        [row(1, identity)],
        [row(2, identity)] * 3,
        [row(number, identity) for number in range(10, 40)],
        [row(50, identity, x={"b": 1, "a": [1, {"c": 2.0}]}), row(50, identity, x=1), row(50, identity)],
    ]
    sent = [pair.insert(rows, number=3 * index + 1) for index, rows in enumerate(statements)]
    yield
    for rows, each in reversed(list(zip(statements, sent, strict=True))):
        pair.retry(rows, each)
        pair.retry(rows, each)
    pair.check()


def case_a_retry_beside_new_rows_that_are_equal(pair: Pair) -> Iterator[None]:
    """Each stored row is taken for at most one statement's, and none that this process wrote itself."""
    sent = pair.insert([row()])
    yield
    pair.retry([row()], sent)
    for _ in range(3):
        pair.insert([row()])
        pair.insert([row(7)])
    pair.check()


def case_equal_bytes_in_another_series_or_of_another_type(pair: Pair) -> Iterator[None]:
    pair.insert([row()])
    yield
    for other in (
        {**row(), "m": "b"},
        {**row(), "v": Int64(0)},
        {**row(), "v": 0.0},
        {**row(), "w": None},
        {name: value for name, value in row().items() if name != "v"},
    ):
        pair.insert([other])
    pair.check()


def case_rows_of_compressed_and_joined_buckets(pair: Pair) -> Iterator[None]:
    """Full buckets are compressed, but with 5.0 (W9); the rows in them are found all the same."""
    statements = [[row(number, number) for number in range(start, start + 400)] for start in range(0, 2400, 400)]
    sent = [pair.insert(rows) for rows in statements]
    packed = {"control.version": {"$gt": 1}}
    buckets = pair.database["system.buckets.c"]
    pair.proxy.wait_until(lambda: SERVER < (6,) or buckets.count_documents(packed) > 0)
    yield
    for rows, each in zip(statements, sent, strict=True):
        pair.retry(rows, each)
    pair.insert([row(number, number, v=-1) for number in range(2400)])
    pair.check()


def case_one_equal_row_that_was_stored_just_before_is_taken_for_the_retry(pair: Pair) -> Iterator[None]:
    """The case that nothing tells apart, as docs/compatibility.md says; the next equal row is stored again."""
    pair.insert([row()])
    yield
    pair.insert([row()])
    assert pair.stored().total() == 1
    assert pair.stored("native").total() == 2
    pair.insert([row()])
    assert pair.stored().total() == 2


CASES: dict[str, Callable[[Pair], Iterator[None]]] = {
    "stored id": case_new_sessions_with_an_id_that_is_stored,
    "equal rows": case_rows_that_several_statements_made_equal_prove_no_retry,
    "retries, text": partial(case_retries_are_not_stored_again, identity="device-1"),
    "retries, object id": partial(case_retries_are_not_stored_again, identity=ObjectId()),
    "retries, number": partial(case_retries_are_not_stored_again, identity=7),
    "retry beside new rows": case_a_retry_beside_new_rows_that_are_equal,
    "other bytes": case_equal_bytes_in_another_series_or_of_another_type,
    "compressed": case_rows_of_compressed_and_joined_buckets,
    "one equal row": case_one_equal_row_that_was_stored_just_before_is_taken_for_the_retry,
}


def connections_of_proxies(backend: MongodProcess) -> list[Any]:
    # Without the transactions that killed processes leave for a minute.
    operations = {"allUsers": True, "idleConnections": True, "idleSessions": False}
    shown = backend.shared_client.admin.aggregate([{"$currentOp": operations}])
    return [each for each in shown if str(each.get("appName")).startswith("tsproxy")]


def test_what_an_earlier_process_stored_is_found(backend: MongodProcess, fragile: ProxyProcess) -> None:
    """Each case up to its ``yield``, then the proxy is killed and started anew, then the rest of each."""
    databases = {name: f"restart_{number}" for number, name in enumerate(CASES)}
    try:
        running = {name: case(Pair(backend, fragile, databases[name])) for name, case in CASES.items()}
        for case in running.values():
            next(case)
        fragile.kill()
        # A process that still seems to be there but cannot be asked is another case, which test_two_proxies.py has.
        backend.wait_until(lambda: not connections_of_proxies(backend))
        fragile.start()
        for name, case in running.items():
            try:
                assert next(case, "done") == "done"
            except AssertionError as error:
                raise AssertionError(name) from error
    finally:
        for database in databases.values():
            backend.shared_client.drop_database(database)
