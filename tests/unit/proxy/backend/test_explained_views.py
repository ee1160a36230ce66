"""Whether times outside the range of bucket ids are stored (Q12), and values of different types in a bucket (Q16)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS

from catalog.errors import CommandError
from proxy.backend.explained_views import ExplainedView, explained_view, explained_views
from tests.support.mongod import MongodProcess
from tests.support.wanted import SERVER


@pytest.mark.parametrize("time_ms", [-60_000, 2**31 * 1000 + 60_000, 2**32 * 1000 + 60_000])
def test_the_server_says_it(mongod: MongodProcess, db_name: str, time_ms: int) -> None:
    """Of a collection with times before 1970 or after 2038, and of no other."""
    database = mongod.shared_client[db_name]

    async def run(name: str, body: dict[str, Any]) -> Mapping[str, Any]:
        return dict(mongod.shared_client[name].command(body))

    for name in ("near", "far"):
        database.create_collection(name, timeseries={"timeField": "t"})
        database[name].insert_one({"t": DatetimeMS(1_700_000_000_000)})
    database["far"].insert_one({"t": DatetimeMS(time_ms)})
    said = asyncio.run(explained_views(run, db_name, ["near", "far"]))
    mixed = SERVER < (6, 0, 0)
    assert said == {
        "near": ExplainedView(extended_range=False, mixed_types=mixed),
        "far": ExplainedView(mixed_types=mixed),
    }


def test_servers_that_do_not_say() -> None:
    """5.0, or a refusal: such times may be there."""

    async def refuse(name: str, body: dict[str, Any]) -> Mapping[str, Any]:
        raise CommandError(13, "not authorized")

    unknown = ExplainedView(extended_range=True, mixed_types=True)
    assert asyncio.run(explained_views(refuse, "db", ["x"])) == {"x": unknown}
    old = {"command": {"pipeline": [{"$_internalUnpackBucket": {"timeField": "t"}}]}}
    assert explained_view(old) == explained_view({"queryPlanner": {}}) == unknown


def test_buckets_of_a_server_before_an_upgrade() -> None:
    """6.0 says so of the collections of 5.0, and of those for which ``collMod`` says it."""
    unpack = {"timeField": "t", "assumeNoMixedSchemaData": False, "usesExtendedRange": False}
    reply = {"command": {"pipeline": [{"$_internalUnpackBucket": unpack}]}}
    assert explained_view(reply) == ExplainedView(extended_range=False, mixed_types=True)
