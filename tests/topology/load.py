"""What applications do all the time, from many threads at once, while the primary goes away."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Self

import pymongo
from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError, WriteConcernError

from proxy.upstream.not_primary import NOT_PRIMARY_CODES
from tests.support.books import Books, measurement_of, new_id
from tests.support.proxy import ProxyProcess

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
ROWS = 600
SERIES = 5
TIMESERIES = {"timeField": "t", "metaField": "m"}
HOST_UNREACHABLE = 6
NAMESPACE_EXISTS = 48

NOT_RETRYABLE = frozenset({"update many", "delete many"})
"""No driver sends these again."""


class Load:
    """One thread for each kind of command, until told to stop; every error that an application sees is kept."""

    def __init__(self, uri: str, database: str) -> None:
        self.client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(uri, serverSelectionTimeoutMS=30_000)
        self.db = self.client[database]
        self.errors: list[tuple[str, Exception]] = []
        self.done: Counter[str] = Counter()
        self.inserted = Books()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._repeat, args=work) for work in self._works().items()]

    def __enter__(self) -> Self:
        for name in ("ts", "inserted", "changed"):
            self._create(name)
        self.db.ts.insert_many([{"t": START + dt.timedelta(seconds=n), "m": n % SERIES, "v": n} for n in range(ROWS)])
        self.db.plain.insert_many([{"_id": number, "x": 0} for number in range(50)])
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def progress(self, proxy: ProxyProcess, more: int = 3) -> None:
        """Wait until each kind was done again."""
        goal = {name: self.done[name] + more for name in self._works()}
        proxy.wait_until(lambda: all(self.done[name] >= count for name, count in goal.items()), timeout_seconds=90)

    def surprises(self) -> list[str]:
        """What should not have been seen by an application whose driver retries reads and writes."""
        return [
            f"{name}: {error!r}" for name, error in self.errors if name not in NOT_RETRYABLE or not _is_honest(error)
        ]

    def check(self) -> None:
        """What was acknowledged was done once."""
        self.inserted.check_read(self.db.inserted.find({}), self.inserted.promise())
        assert self.db.plain.find_one({"_id": 0}, {"_id": 0}) == {"x": self.done["update one"]}
        assert self.db.changed.count_documents({"m": "one"}) == 0

    def _create(self, name: str, attempts: int = 5) -> None:
        """Also if a member that an earlier test killed is elected just now: no driver sends this command again."""
        for attempts_left in reversed(range(attempts)):
            try:
                self.db.create_collection(name, timeseries=TIMESERIES, check_exists=False)
            except (AutoReconnect, WriteConcernError):
                if not attempts_left:
                    raise
            except OperationFailure as error:
                if error.code != NAMESPACE_EXISTS or attempts_left == attempts - 1:
                    raise
                return
            else:
                return

    def _repeat(self, name: str, work: Callable[[int], None]) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                work(number)
            except (PyMongoError, AssertionError) as error:
                self.errors.append((name, error))
            else:
                self.done[name] += 1

    def _works(self) -> Mapping[str, Callable[[int], None]]:
        return {
            "find": self._find,
            "aggregate": self._aggregate,
            "count": lambda n: _same(self.db.ts.count_documents({"v": {"$gte": ROWS // 2}}), ROWS // 2),
            "distinct": lambda n: _same(sorted(self.db.ts.distinct("m")), list(range(SERIES))),
            "find in an ordinary collection": lambda n: _same(len(list(self.db.plain.find())), 50),
            "insert": lambda n: self._insert(1, ordered=True),
            "insert many": lambda n: self._insert(5, ordered=bool(n % 2)),
            "update one": lambda n: _same(self.db.plain.update_one({"_id": 0}, {"$inc": {"x": 1}}).matched_count, 1),
            "delete one": self._delete_one,
            "update many": lambda n: _ignored(self.db.changed.update_many({"m": n % 3}, {"$set": {"m": (n + 1) % 3}})),
            "delete many": self._delete_many,
        }

    def _find(self, number: int) -> None:
        _same(len(list(self.db.ts.find({"m": number % SERIES}, batch_size=ROWS))), ROWS // SERIES)

    def _aggregate(self, number: int) -> None:
        pipeline: list[Mapping[str, Any]] = [{"$group": {"_id": "$m", "sum": {"$sum": "$v"}}}, {"$count": "n"}]
        _same(list(self.db.ts.aggregate(pipeline)), [{"n": SERIES}])

    def _insert(self, rows: int, *, ordered: bool) -> None:
        documents = [measurement_of(new_id(series)) for series in range(rows)]
        if rows == 1:
            self.db.inserted.insert_one(documents[0])
        else:
            self.db.inserted.insert_many(documents, ordered=ordered)
        self.inserted.acknowledged.update(each["_id"] for each in documents)

    def _delete_one(self, number: int) -> None:
        self.db.changed.insert_one({"t": START, "m": "one", "v": number})
        _same(self.db.changed.delete_one({"m": "one", "v": number}).deleted_count, 1)

    def _delete_many(self, number: int) -> None:
        self.db.changed.insert_one({"t": START, "m": number % 3, "v": -number})
        self.db.changed.delete_many({"v": {"$lt": 0}})


def _same(found: object, wanted: object) -> None:
    assert found == wanted


def _ignored(_: object) -> None:
    """For works whose result does not matter."""


def _is_honest(error: Exception) -> bool:
    """Names the loss of the primary, and does not ask for a retry that no driver makes of these commands."""
    if not isinstance(error, PyMongoError) or error.has_error_label("RetryableWriteError"):
        return False
    if isinstance(error, pymongo.errors.AutoReconnect | WriteConcernError):
        return True
    details = getattr(error, "details", None) or {}
    codes = {details.get("code"), *(each["code"] for each in details.get("writeErrors", ()))}
    return bool(codes & {*NOT_PRIMARY_CODES, HOST_UNREACHABLE})
