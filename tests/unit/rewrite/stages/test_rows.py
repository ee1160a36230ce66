"""The number of rows of a bucket as an expression (W3, W6). ``tests/differential/test_count.py`` runs it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rewrite.stages.rows import UNKNOWN_COUNT, rows_in_bucket
from tests.support.mongod import MongodProcess
from tests.support.scopes import SCOPE


def test_compressed_buckets_say_it_themselves() -> None:
    """W6."""
    version, _, count = rows_in_bucket(SCOPE)["$cond"]
    assert version == {"$eq": ["$control.version", 1]}
    assert count == "$control.count"
    assert UNKNOWN_COUNT["control.count"] == {"$exists": False}


@pytest.mark.parametrize("rows", [1, 9, 10, 11, 57, 99, 100, 101, 640, 999, 1000, 1001, 12_345])
def test_size_of_the_time_column_tells_its_length(mongod: MongodProcess, db_name: str, rows: int) -> None:
    """W3: rows are numbered without gaps; with a gap in the numbering they are counted."""
    client = mongod.shared_client
    whole = {str(n): datetime.fromtimestamp(n, UTC) for n in range(rows)}
    gap = {key: value for key, value in whole.items() if key != "0"}
    buckets = [{"control": {"version": 1}, "data": {"t": column}} for column in (whole, gap)]
    client[db_name]["b"].insert_many(buckets)
    counted = client[db_name]["b"].aggregate([{"$project": {"_id": 0, "n": rows_in_bucket(SCOPE)}}])
    assert [bucket["n"] for bucket in counted] == [rows, rows - 1]
