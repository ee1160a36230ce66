"""Whether times outside the range of bucket ids are stored (Q12)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS

from catalog.errors import CommandError
from proxy.backend.extended_range import extended_range, may_hold_extended_range
from tests.support.mongod import MongodProcess


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
    assert asyncio.run(extended_range(run, db_name, ["near", "far"])) == {"near": False, "far": True}


def test_servers_that_do_not_say() -> None:
    """5.0, or a refusal: such times may be there."""

    async def refuse(name: str, body: dict[str, Any]) -> Mapping[str, Any]:
        raise CommandError(13, "not authorized")

    assert asyncio.run(extended_range(refuse, "db", ["x"])) == {"x": True}
    old = {"command": {"pipeline": [{"$_internalUnpackBucket": {"timeField": "t"}}]}}
    assert may_hold_extended_range(old)
    assert may_hold_extended_range({"queryPlanner": {}})
