"""``control.closed``, set by hand on a bucket, is respected (W50, W125)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tests.support.twins import Twins, run

NOON = dt.datetime(2024, 5, 17, 12, tzinfo=dt.UTC)
CLOSE = {"update": "system.buckets.x", "updates": [{"q": {}, "u": {"$set": {"control.closed": True}}, "multi": True}]}


def insert(database: Any, number: int, minute: int) -> None:
    row = {"_id": number, "t": NOON + dt.timedelta(minutes=minute), "m": "a", "v": number}
    assert run(database, {"insert": "x", "documents": [row]}).get("n") == 1


def buckets(database: Any) -> list[tuple[bool, list[int]]]:
    """Each stored bucket: whether it is closed, and the ``_id`` of its rows."""
    found = run(database, {"find": "system.buckets.x", "sort": {"_id": 1}})["cursor"]["firstBatch"]
    return sorted((bool(each["control"].get("closed")), sorted(each["data"]["_id"].values())) for each in found)


def create(twins: Twins) -> None:
    for database in (twins.native, twins.virtual):
        database.command({"create": "x", "timeseries": {"timeField": "t", "metaField": "m"}})
        insert(database, 0, 0)
        insert(database, 1, 1)


@pytest.mark.parametrize("minute", [2, 0], ids=["in order", "late"])
@pytest.mark.parametrize("writer", ["stored", "virtual"])
def test_closed_while_the_proxy_has_it_open(twins: Twins, writer: str, minute: int) -> None:
    """By a client of the server, which the proxy does not see, and by one of the proxy; natively the same."""
    create(twins)
    for database in (twins.native, getattr(twins, writer)):
        assert run(database, CLOSE)["nModified"] == 1
    for database in (twins.native, twins.virtual):
        insert(database, 2, minute)
        insert(database, 3, minute)
    expected = [(False, [2, 3]), (True, [0, 1])]
    assert buckets(twins.stored) == expected
    assert buckets(twins.native) == expected
    rows = run(twins.stored, {"find": "x", "sort": {"_id": 1}})["cursor"]["firstBatch"]
    assert [row["_id"] for row in rows] == [0, 1, 2, 3]


def test_closed_before_the_proxy_looks_for_it(twins: Twins) -> None:
    """A bucket that is not in memory is looked up when a late measurement comes, and one that is closed is left."""
    create(twins)
    assert run(twins.stored, CLOSE)["nModified"] == 1
    # Forgets what the proxy knows of the collection.
    assert run(twins.virtual, {"collMod": "x", "expireAfterSeconds": 10**9})["ok"] == 1
    insert(twins.virtual, 2, 1)
    assert buckets(twins.stored) == [(False, [2]), (True, [0, 1])]
    assert run(twins.virtual, {"collMod": "x", "expireAfterSeconds": 10**8})["ok"] == 1
    insert(twins.virtual, 3, 1)
    assert buckets(twins.stored) == [(False, [2, 3]), (True, [0, 1])], "one that is not closed is found again"
