"""Time-series collections and their indexes, as a server lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from catalog.errors import CommandError
from proxy.process.doctor import listing
from proxy.process.doctor.listing import collections_of
from tests.support.mongod import MongodProcess


def on(server: MongodProcess, *databases: str) -> listing.Run:
    """Commands to a server that has only these databases."""

    async def run(database: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if "listDatabases" in body:
            return {"databases": [{"name": name} for name in ("admin", "config", "local", *databases)]}
        return dict(server.shared_client[database].command(dict(body)))

    return run


def make(server: MongodProcess, database: str, name: str, *indexes: list[tuple[str, int]], meta: bool = True) -> None:
    options = {"timeField": "t", **({"metaField": "m"} if meta else {})}
    made = server.shared_client[database].create_collection(name, timeseries=options)
    for keys in indexes:
        made.create_index(keys)


async def test_which_indexes_find_what(mongod: MongodProcess, db_name: str) -> None:
    make(mongod, db_name, "none")
    make(mongod, db_name, "both", [("m", 1), ("t", -1)])
    make(mongod, db_name, "series", [("m", 1), ("t", 1)])
    make(mongod, db_name, "latest", [("m.a", 1), ("t", -1)])
    make(mongod, db_name, "without_meta", meta=False)
    mongod.shared_client[db_name].plain.insert_one({})
    found = await collections_of(on(mongod, db_name))
    assert (found.count, found.unknown, found.is_complete) == (5, 0, True)
    assert {each.namespace.collection: (each.finds_series, each.finds_latest) for each in found.indexes} == {
        "none": (False, False),
        "both": (True, True),
        "series": (True, False),
        "latest": (False, True),
    }


async def test_indexes_that_may_not_be_listed_are_counted(mongod: MongodProcess, db_name: str) -> None:
    make(mongod, db_name, "c")
    run = on(mongod, db_name)

    async def guarded(database: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if "listIndexes" in body:
            raise CommandError(13, "not authorized")
        return await run(database, body)

    found = await collections_of(guarded)
    assert (found.count, found.unknown, found.indexes) == (1, 1, ())


async def test_limits(mongod: MongodProcess, db_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        make(mongod, db_name, name)
    monkeypatch.setattr(listing, "MOST_COLLECTIONS", 1)
    found = await collections_of(on(mongod, db_name))
    assert (found.count, len(found.indexes), found.is_complete) == (2, 1, False)
    monkeypatch.setattr(listing, "MOST_DATABASES", 1)
    assert not (await collections_of(on(mongod, db_name, "other"))).is_complete
    monkeypatch.setattr(listing, "LIST_SECONDS", -1.0)
    assert not (await collections_of(on(mongod, db_name))).is_complete


async def test_no_cursor_stays_open(mongod: MongodProcess, db_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        make(mongod, db_name, name)
    monkeypatch.setattr(listing, "MOST_ENTRIES", 2)
    assert not (await collections_of(on(mongod, db_name))).is_complete
    pipeline = [{"$currentOp": {"idleCursors": True}}, {"$match": {"type": "idleCursor", "ns": {"$regex": db_name}}}]
    assert list(mongod.shared_client.admin.aggregate(pipeline)) == []
