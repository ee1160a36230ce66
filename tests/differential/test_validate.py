"""What a server's ``validate`` says of the proxy's buckets: ids, summaries, counts, compressed columns."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from bson import Binary, Decimal128, Int64, ObjectId
from bson.datetime_ms import DatetimeMS

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.twins import Commands, run

NOON_MS = 1_715_947_200_000
HOUR_MS = 3_600_000
DEADLINE_SECONDS = 60.0
VALUES: tuple[Any, ...] = (
    *(1, Int64(2), 2.5, float("nan"), Decimal128("1.50"), "text", None, True, Binary(b"\0\1", 128), ObjectId()),
    *({"p": 1, "q": {"r": [1, 2]}}, [{"p": 1}, 2, []], {}, [], DatetimeMS(-1)),
)


def row(number: int, offset_ms: int, meta: Any, **fields: Any) -> dict[str, Any]:
    return {"_id": number, "t": DatetimeMS(NOON_MS + offset_ms), "m": meta, **fields}


def insert(database: Commands, documents: list[dict[str, Any]]) -> None:
    assert run(database, {"insert": "x", "documents": documents, "ordered": False})["n"] == len(documents)


def validated(database: Commands) -> dict[str, Any]:
    """The reply of a validation that could look at everything: not while a checkpoint is missing."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        database.client.admin.command("fsync")
        found = run(database, {"validate": "system.buckets.x", "full": True})
        if not any("transient" in each for each in found["warnings"]):
            return found
        assert time.monotonic() < deadline, found
        threading.Event().wait(0.2)


def fill(database: Commands, *, before_1970: bool) -> int:
    """Buckets of every kind: full, late, of large rows, of many types, of far times, changed and deleted from."""
    database.command({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    insert(database, [row(n, 1000 * n, "full", v=n % 7, s=f"{n}") for n in range(2300)])
    for n in range(12):
        insert(database, [row(3000 + n, 1000 * n, {"b": 1, "a": n % 2}, v=n)])
        insert(database, [row(3100 + n, HOUR_MS * (n % 3), "late", v=n / 3)])
        insert(database, [row(3200 + n, n, "large", v="x" * 40_000)])
    insert(database, [row(4000 + n, n, "types", v=value) for n, value in enumerate(VALUES)])
    far = [row(5000 + n, -NOON_MS - 1 + n, None, v=n) for n in range(0 if before_1970 else 1, 3)]
    insert(database, far)
    insert(database, [row(6000 + n, 1000 * n, "gone", v=n) for n in range(1200)])
    removal = {"q": {"m": "gone", "v": {"$gte": 100}}, "limit": 0}
    assert run(database, {"delete": "x", "deletes": [removal]})["n"] == 1100
    change = {"q": {"m": "late"}, "u": {"$set": {"m": "later"}}, "multi": True}
    assert run(database, {"update": "x", "updates": [change]})["n"] == 12
    return 2300 + 3 * 12 + len(VALUES) + len(far) + 100


@pytest.mark.parametrize("strategy", ["in_place", "in_parts"])
def test_servers_find_nothing_to_complain_of(
    replica_set: MongodProcess,
    server_directory: Any,
    db_name: str,
    strategy: str,
    mongod_version: tuple[int, ...],
) -> None:
    """W2-W28: 7.0 checks ids and summaries of every bucket against its rows, and expands compressed ones.

    So do later releases of 6.0, but they complain of their own buckets that begin before 1970, too.
    """
    proxy = ProxyProcess(
        server_directory / f"validate_{strategy}", replica_set.uri, flags=["--write-strategy", strategy]
    )
    try:
        proxy.start()
        with proxy.client() as client:
            count = fill(Commands(client, db_name), before_1970=not (6, 0, 5) < mongod_version < (7,))
            buckets = replica_set.shared_client[db_name]["system.buckets.x"]
            full = 2 if mongod_version >= (6,) else 0
            proxy.wait_until(lambda: buckets.count_documents({"meta": "full", "control.version": 2}) >= full)
    finally:
        # Joins what is in parts.
        proxy.stop()
    stored = Commands(replica_set.shared_client, db_name)
    assert run(stored, {"count": "x"})["n"] == count
    found = validated(stored)
    assert (found["ok"], found["valid"], found["errors"], found["warnings"]) == (1, True, [], []), found
    assert found.get("nNonCompliantDocuments", 0) == 0


def test_later_servers_find_a_wrong_summary(replica_set: MongodProcess, db_name: str, mongod_version: Any) -> None:
    """So the test above sees something there; earlier ones look at nothing inside of buckets."""
    stored = Commands(replica_set.shared_client, db_name)
    stored.command({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
    insert(stored, [row(n, n, "a", v=n) for n in range(3)])
    wrong = {"q": {}, "u": {"$set": {"control.max.v": 1}}}
    assert run(stored, {"update": "system.buckets.x", "updates": [wrong]})["nModified"] == 1
    found = validated(stored)
    complains = not found["valid"] or bool(found["warnings"]) or bool(found.get("nNonCompliantDocuments"))
    assert complains == (mongod_version > (6, 0, 5)), found
