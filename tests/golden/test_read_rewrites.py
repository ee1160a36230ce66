"""Whole rewrites of reads: the text of the pipeline on buckets, and its rows on a real server.

``read_rewrites.json`` holds before and after. ``TSPROXY_WRITE_GOLDEN=1`` writes what the rules make now.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from bson import json_util
from bson.codec_options import DatetimeConversion
from bson.datetime_ms import DatetimeMS

from catalog.bson.codec import CODEC
from rewrite.stages.pipeline import rewrite_pipeline
from rewrite.stages.scope import Scope
from tests.support.mongod import MongodProcess
from tests.support.read_plans import profile_of, virtual_collection
from tests.support.scopes import SCOPE

GOLDEN = Path(__file__).with_name("read_rewrites.json")
START_MS = 1_700_000_000_000
EXTENDED = json_util.JSONOptions(
    json_mode=json_util.JSONMode.RELAXED,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
)
CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text())


def decoded(value: Any) -> Any:
    """Extended JSON as BSON values."""
    return json_util.loads(json.dumps(value), json_options=EXTENDED)


def encoded(value: Any) -> Any:
    """BSON values as extended JSON."""
    return json.loads(json_util.dumps(value, json_options=EXTENDED))


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_text(case: dict[str, Any]) -> None:
    """The rules make exactly this."""
    after = encoded(rewrite_pipeline(decoded(case["before"]), SCOPE))
    if "TSPROXY_WRITE_GOLDEN" in os.environ:
        case["after"] = after
        GOLDEN.write_text(json.dumps(CASES, indent=1) + "\n")
    assert after == case["after"]


def rows(number: int) -> list[dict[str, Any]]:
    """Three series, an hour and more of each."""
    return [
        {"_id": n, "t": DatetimeMS(START_MS + n * 97_000), "m": {"a": n % 3, "b": n % 2}, "v": n, "w": [n % 5, 7]}
        for n in range(number)
    ]


def test_rows(mongod: MongodProcess, db_name: str) -> None:
    """Both pipelines give the same rows, the second over the buckets."""
    client = mongod.shared_client
    database = client.get_database(db_name, codec_options=CODEC)
    database.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    database["x"].insert_many(rows(300))
    database["plain"].insert_many(rows(300))
    scope = Scope.of(virtual_collection(client, db_name, "x"), profile_of(client))
    for case in CASES:
        before = decoded(case["before"])
        expected = sorted(map(repr, map(by_field, database["plain"].aggregate(before))))
        found = database["system.buckets.x"].aggregate(rewrite_pipeline(before, scope))
        assert sorted(map(repr, map(by_field, found))) == expected, case["name"]


def by_field(row: dict[str, Any]) -> list[tuple[str, Any]]:
    """The order of columns is not the order of insertion (Q2)."""
    return sorted(row.items())
