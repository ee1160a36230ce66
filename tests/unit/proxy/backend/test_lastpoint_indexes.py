"""Which indexes list the latest bucket of each series first (Q23)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pymongo import IndexModel

from catalog.errors import CommandError
from proxy.backend.lastpoint_indexes import lastpoint_indexes, telling_the_latest, usable_indexes
from tests.support.mongod import MongodProcess


def test_indexes_that_go_on_with_time_descending(mongod: MongodProcess, db_name: str) -> None:
    database = mongod.shared_client[db_name]

    async def run(name: str, body: dict[str, Any]) -> Mapping[str, Any]:
        return dict(mongod.shared_client[name].command(body))

    for name in ("with", "without"):
        database.create_collection(name, timeseries={"timeField": "t", "metaField": "m"})
    database["with"].create_indexes(
        [
            IndexModel([("m.a", 1), ("t", -1)]),
            IndexModel([("m.b", -1), ("t", -1), ("m.c", 1)]),
            IndexModel([("m.c", 1), ("t", 1)]),
            IndexModel([("m.d", 1), ("m.e", 1), ("t", -1)]),
            IndexModel([("m.f", 1), ("t", -1)], hidden=True),
            IndexModel([("m.g", 1), ("t", -1)], partialFilterExpression={"m.g": {"$gt": 5}}),
            IndexModel([("t", -1)]),
        ]
    )
    found = asyncio.run(lastpoint_indexes(run, db_name, {"with": "t", "without": "t"}))
    assert found["with"] == frozenset({("m.a", 1), ("m.b", -1)})
    assert found["without"] == frozenset()


def test_server_that_does_not_say() -> None:
    async def refuse(name: str, body: dict[str, Any]) -> Mapping[str, Any]:
        raise CommandError(13, "not authorized")

    assert asyncio.run(lastpoint_indexes(refuse, "db", {"x": "t"})) == {"x": None}


def test_very_long_paths_are_not_kept() -> None:
    listed = [{"key": {f"m.{'a' * length}": 1, "t": -1}} for length in (200, 1_000_000)]
    assert [len(path) for path, _ in telling_the_latest({"cursor": {"firstBatch": listed}}, "t")] == [202]


def test_indexes_without_every_bucket_are_not_usable() -> None:
    listed = [
        {"key": {"m": 1}},
        {"key": {"m": -1}, "sparse": True},
        {"key": {"t": 1}, "partialFilterExpression": {"m": 1}},
    ]
    assert list(usable_indexes({"cursor": {"firstBatch": listed}})) == [[("m", 1)]]
