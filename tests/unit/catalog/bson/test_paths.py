"""Which names a dotted path can address; the server's own answers to each."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from pymongo.errors import WriteError

from catalog.bson.paths import is_path_safe
from tests.support.mongod import MongodProcess

SAFE = ("a", "_id", "0", "a$b", "é", "a b", "control")
UNSAFE = ("a.b", "", "$", "$[]", "$[x]", ".", "a.", "$a")


@pytest.mark.parametrize("name", SAFE)
def test_safe_names_are_addressed_by_the_server(mongod: MongodProcess, db_name: str, name: str) -> None:
    """W122."""
    collection = mongod.shared_client[db_name].c
    collection.insert_one({"_id": 1, "data": {name: {"0": 1}}})
    path = f"data.{name}"
    collection.update_one({f"{path}.0": {"$exists": True}, f"{path}.1": {"$exists": False}}, {"$set": {f"{path}.1": 2}})
    assert is_path_safe(name.encode())
    assert collection.find_one() == {"_id": 1, "data": {name: {"0": 1, "1": 2}}}


@pytest.mark.parametrize("name", UNSAFE)
def test_other_names_are_not_trusted_to_a_path(mongod: MongodProcess, db_name: str, name: str) -> None:
    """W122: the server refuses them, or writes somewhere else (``$a`` would work in updates)."""
    assert not is_path_safe(name.encode())
    collection = mongod.shared_client[db_name].c
    before: dict[str, Any] = {"_id": 1, "data": {name: {"0": 1}}}
    collection.insert_one(before)
    refused = name in {"", "$", "$[]", "$[x]", ".", "a."}
    with pytest.raises(WriteError) if refused else nullcontext():
        collection.update_one({"_id": 1}, {"$set": {f"data.{name}.1": 2}})
    wrote_well = collection.find_one() == {"_id": 1, "data": {name: {"0": 1, "1": 2}}}
    assert wrote_well == (name == "$a")
