"""Exports in every form; ``tests/clients/test_import_export.py`` imports them again."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from pathlib import Path

import bson
import pytest

from proxy.tools import exporting
from proxy.tools.targets import WrongTarget, connected
from tests.support.mongod import MongodProcess

AT = dt.datetime(2024, 5, 18, tzinfo=dt.UTC)


def test_forms_of_files(mongod: MongodProcess, db_name: str, tmp_path: Path) -> None:
    database = mongod.shared_client[db_name]
    database.create_collection("ts", timeseries={"timeField": "t", "metaField": "m"}, expireAfterSeconds=10**9)
    database.ts.insert_many([{"_id": number, "t": AT, "m": 1, "v": bson.Int64(number)} for number in range(25_000)])
    told: list[int] = []
    with connected(mongod.uri) as client:
        collection = client[db_name].ts
        assert exporting.run(collection, tmp_path / "a.bson", form="bson", progress=told.append) == 25_000
        assert exporting.run(collection, tmp_path / "b.json.gz", form="json", query={"_id": {"$lt": 2}}) == 2
        assert exporting.run(collection, tmp_path / "c.json", form="json", query={"_id": 1}, relaxed=True) == 1
        for name in ("gone", "plain"):
            database.plain.insert_one({})
            with pytest.raises(WrongTarget):
                exporting.run(client[db_name][name], tmp_path / "d.bson", form="bson")
    assert told == sorted(told)
    assert told[-1] == 25_000
    assert len(bson.decode_all((tmp_path / "a.bson").read_bytes())) == 25_000
    lines = gzip.decompress((tmp_path / "b.json.gz").read_bytes()).decode().splitlines()
    assert sorted((json.loads(line)["v"] for line in lines), key=str) == [{"$numberLong": "0"}, {"$numberLong": "1"}]
    assert json.loads((tmp_path / "c.json").read_text())["v"] == 1
    metadata = json.loads((tmp_path / "a.metadata.json").read_text())
    assert metadata["options"]["timeseries"]["metaField"] == "m"
    assert metadata["type"] == "timeseries"
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("a.bson", "a.metadata.json"),
        ("a.bson.gz", "a.metadata.json"),
        ("a", "a.metadata.json"),
        ("x.y.json", "x.y.metadata.json"),
    ],
)
def test_names_of_metadata(name: str, beside: str) -> None:
    assert exporting.metadata_path(Path("d") / name) == Path("d") / beside
