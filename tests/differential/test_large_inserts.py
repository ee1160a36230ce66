"""Large inserts of interleaved rows are staged by series and time; what they answer and store is as natively."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from bson import Int64
from bson.datetime_ms import DatetimeMS

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.twins import Commands, Reply, Twins

NOON = 1_700_000_000_000
DAY_MS = 86_400_000
TM = {"timeField": "t", "metaField": "m"}


def rows(count: int, wrong: Sequence[int]) -> list[dict[str, Any]]:
    """At random times of two days, in seven series; those in ``wrong`` have no time."""
    chance = random.Random(count)
    return [
        {"n": n, "m": n % 7, "_id": n}
        if n in wrong
        else {"t": DatetimeMS(NOON + chance.randrange(2 * DAY_MS)), "m": n % 7, "n": n, "_id": n}
        for n in range(count)
    ]


def stored(database: Commands) -> list[dict[str, Any]]:
    """All rows, by number."""
    pipeline = [{"$sort": {"n": 1}}, {"$group": {"_id": None, "rows": {"$push": "$$ROOT"}}}]
    (answer,) = database.command({"aggregate": "x", "pipeline": pipeline, "cursor": {}})["cursor"]["firstBatch"]
    found: list[dict[str, Any]] = answer["rows"]
    return found


def told(reply: Reply) -> Reply:
    """The reply without ``n``, which 6.0.5 does not tell rightly of ordered inserts and of retries (W95)."""
    return {name: value for name, value in reply.items() if name != "n"}


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(
    ("count", "wrong"),
    [(700, ()), (700, (0,)), (700, (333, 600)), (10_500, (10_200,)), (10_500, (3, 9_999, 10_499))],
    ids=str,
)
def test_replies_and_rows(twins: Twins, count: int, wrong: tuple[int, ...], ordered: bool) -> None:
    """W90, W97."""
    twins.same({"create": "x", "timeseries": TM})
    twins.same({"insert": "x", "documents": [{"t": DatetimeMS(NOON), "m": 1, "n": -1, "_id": -1}]})
    native, virtual = twins.both({"insert": "x", "documents": rows(count, wrong), "ordered": ordered})
    assert told(virtual) == told(native)
    assert virtual["n"] == (min(wrong, default=count) if ordered else count - len(wrong))
    rows_there = stored(twins.virtual)
    assert rows_there == stored(twins.native)
    assert len(rows_there) == virtual["n"] + 1


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("wrong", [(), (333, 600)], ids=str)
def test_retries(
    replica_set: MongodProcess, proxy_rs: ProxyProcess, db_name: str, wrong: tuple[int, ...], ordered: bool
) -> None:
    """W102: what was written is not written again."""
    # Clients of their own, so that their sessions are used for nothing else.
    with replica_set.client() as native_client, proxy_rs.client() as proxied_client:
        twins = Twins(native_client, proxied_client, db_name)
        twins.same({"create": "x", "timeseries": TM})
        insert = {"insert": "x", "documents": rows(700, wrong), "ordered": ordered, "txnNumber": Int64(1)}
        native, virtual = twins.both(insert)
        assert told(virtual) == told(native)
        assert twins.both(insert)[1] == virtual
        rows_there = stored(twins.virtual)
        assert rows_there == stored(twins.native)
        assert len(rows_there) == virtual["n"]
        twins.drop()
