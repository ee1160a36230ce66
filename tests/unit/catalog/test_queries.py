"""The query that matches nothing; what a server examines for it: ``differential/test_documents_examined.py``."""

from __future__ import annotations

from typing import Any

import pytest
from bson import MaxKey, MinKey, ObjectId

from catalog.queries import NO_DOCUMENT
from tests.support.mongod import MongodProcess


@pytest.mark.parametrize("value", [MinKey(), MaxKey(), None, False, -1, "", {}, ObjectId(bytes(12))])
def test_no_id_matches(mongod: MongodProcess, db_name: str, value: Any) -> None:
    collection = mongod.shared_client[db_name].ordinary
    collection.insert_one({"_id": value})
    assert collection.find_one(NO_DOCUMENT) is None
    assert collection.delete_many(NO_DOCUMENT).deleted_count == 0
