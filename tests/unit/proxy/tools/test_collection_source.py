"""A regular collection is read in the order of its _id, from any mark."""

from __future__ import annotations

import bson
import pytest

from proxy.tools.collection_source import CollectionSource
from proxy.tools.rows import Broken, Row
from proxy.tools.targets import connected
from tests.support.mongod import MongodProcess

IDS = [None, -1, 2.5, 7, "a", "b", {"x": 1}, bson.Binary(b"x", 0), bson.ObjectId(), True, bson.Timestamp(1, 1)]


def test_ids_of_all_types_are_continued(mongod: MongodProcess, db_name: str) -> None:
    mongod.shared_client[db_name].plain.insert_many([{"_id": each, "v": 1} for each in IDS])
    with connected(mongod.uri) as client:
        source = CollectionSource(client[db_name].plain)
        rows = list(source.rows({}))
        assert len(rows) == len(IDS) == source.total
        for number, row in enumerate(rows, 1):
            assert isinstance(row, Row)
            rest = list(source.rows(source.mark_after(row)))
            assert rest == rows[number:]


def test_only_regular_collections(mongod: MongodProcess, db_name: str) -> None:
    database = mongod.shared_client[db_name]
    database.create_collection("ts", timeseries={"timeField": "t"})
    with connected(mongod.uri) as client:
        for name, reason in (("ts", "is a timeseries"), ("gone", "does not exist")):
            with pytest.raises(Broken, match=reason):
                CollectionSource(client[db_name][name])
