"""The target of an import: created if it is missing, and never another than was said."""

from __future__ import annotations

from pathlib import Path

import pytest
from bson import json_util

from proxy.tools.targets import Fields, TargetOptions, WrongTarget, connected, prepared, split_name
from tests.support.mongod import MongodProcess


def test_names() -> None:
    assert split_name("db.a.b") == ("db", "a.b")
    for wrong in ("db", "db.", ".c", ""):
        with pytest.raises(WrongTarget, match=r"is not DATABASE\.COLLECTION"):
            split_name(wrong)


def test_a_connection_string_that_is_not_valid_shows_no_password() -> None:
    with pytest.raises(WrongTarget) as refused:
        connected("mongodb://user:secret@host:notaport/")
    assert "secret" not in str(refused.value)


def test_created_as_said_or_as_the_file_beside_says(mongod: MongodProcess, db_name: str, tmp_path: Path) -> None:
    beside = tmp_path / "c.metadata.json"
    beside.write_text(
        json_util.dumps({"options": {"timeseries": {"timeField": "a", "metaField": "b"}, "expireAfterSeconds": 60}})
    )
    with connected(mongod.uri) as client:
        database = client[db_name]
        with pytest.raises(WrongTarget, match="--time-field"):
            prepared(database.one, TargetOptions())
        options = TargetOptions("t", "m", "hours", 3600)
        assert prepared(database.one, options) == Fields(b"t", b"m")
        assert prepared(database.two, TargetOptions(), beside) == Fields(b"a", b"b")
        assert prepared(database.three, TargetOptions("x"), beside) == Fields(b"x", None)
        assert prepared(database.one, TargetOptions()) == Fields(b"t", b"m")
        with pytest.raises(WrongTarget, match="where --meta-field is 'other'"):
            prepared(database.one, TargetOptions(meta_field="other"))
    (one,) = mongod.shared_client[db_name].list_collections(filter={"name": "one"})
    assert one["options"]["timeseries"]["granularity"] == "hours"
    assert one["options"]["expireAfterSeconds"] == 3600
    mongod.shared_client[db_name].create_collection("plain")
    with connected(mongod.uri) as client, pytest.raises(WrongTarget, match="is not a time-series collection"):
        prepared(client[db_name].plain, TargetOptions())
    beside.write_text("{}")
    with connected(mongod.uri) as client, pytest.raises(WrongTarget, match="has no options"):
        prepared(client[db_name].four, TargetOptions(), beside)
