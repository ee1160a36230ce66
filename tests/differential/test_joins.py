"""``$lookup`` of a time-series collection for each row (H14): a plain collection is the judge."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.read_twins import at, beside_plain
from tests.support.twins import Twins, exact, run

OF_ROW: dict[str, Any] = {"$match": {"$expr": {"$eq": ["$v", "$$v"]}}}
OF_META: dict[str, Any] = {"$match": {"m.k": {"$gte": 0}}}
OF_TIME: dict[str, Any] = {"$match": {"t": {"$gte": at(0)}}}
BY_V: dict[str, Any] = {"$sort": {"v": 1}}


def lookup(source: str, stages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    return {"$lookup": {"from": source, "let": {"v": "$v"}, "pipeline": stages, "as": "l", **fields}}


@pytest.mark.parametrize(
    "stages",
    [
        [OF_ROW, OF_META],
        [OF_ROW, OF_TIME],
        [OF_META, OF_ROW, OF_TIME],
        [OF_ROW, BY_V, OF_META],
        [BY_V, OF_ROW, OF_META],
        [{"$set": {"w": 1}}, OF_ROW, OF_META],
        [OF_ROW, {"$unwind": "$v"}, OF_META],
        [OF_ROW, {"$project": {"v": 1, "m": 1}}, OF_META],
        [{"$set": {"v": "$$v"}}, OF_META],
        [OF_ROW, {"$limit": 5}, OF_META],
        [BY_V, {"$set": {"w": "$$v"}}, {"$limit": 2}],
        [{"$set": {"w": "$$v"}}, BY_V, {"$limit": 2}],
        [OF_ROW],
    ],
    ids=lambda stages: ",".join(next(iter(stage)) for stage in stages),
)
@pytest.mark.parametrize("source", ["x", "plain"])
@pytest.mark.parametrize("inside", ["the pipeline", "$unionWith", "$lookup", "with a local field"])
def test_h14_each_row_gets_its_own(twins: Twins, stages: list[dict[str, Any]], source: str, inside: str) -> None:
    """Natively, 6.0.5 gives each row what it has found for the first one."""
    beside_plain(twins, [{"_id": n, "t": at(n), "m": {"k": n}, "v": n} for n in range(4)])

    def answer(name: str, joined: str) -> Any:
        join = lookup(joined, [*stages, {"$sort": {"_id": 1}}])
        match inside:
            case "$unionWith":
                join = {"$unionWith": {"coll": joined, "pipeline": [join]}}
            case "$lookup":
                within = lookup(joined, [*stages, {"$sort": {"_id": 1}}])
                del within["$lookup"]["let"]
                join = lookup(joined, [within, {"$sort": {"_id": 1}}])
            case "with a local field":
                join["$lookup"] |= {"localField": "v", "foreignField": "v"}
        reply = run(twins.virtual, {"aggregate": name, "pipeline": [join, {"$sort": {"_id": 1, "l": 1}}], "cursor": {}})
        return exact(reply["cursor"]["firstBatch"] if reply["ok"] == 1 else reply)

    assert answer("x", source) == answer("plain", "plain")
