"""Which fields are as they were stored."""

from __future__ import annotations

from typing import Any

import pytest

from rewrite.stages.shaping import shapes

FIELDS = ("_id", "t", "m", "v")


@pytest.mark.parametrize(
    ("stages", "stored"),
    [
        ([], FIELDS),
        ([{"$match": {"v": 1}}, {"$sort": {"v": 1}}], FIELDS),
        ([{"$addFields": {"v.a": 1, "w": 2}}], ("_id", "t", "m")),
        ([{"$set": {"t": 1}}], ("_id", "m", "v")),
        ([{"$unset": ["v", "m.a"]}], ("_id", "t")),
        ([{"$unset": "t"}], ("_id", "m", "v")),
        ([{"$project": {"v": 0}}], ("_id", "t", "m")),
        ([{"$project": {"v": 1, "m.a": 1, "t": "$v"}}], ("_id", "v")),
        ([{"$project": {"v": 1, "_id": 0}}], ("v",)),
        ([{"$project": {"v": 1, "t": 1}}, {"$project": {"m": 1, "t": 1}}], ("_id", "t")),
        ([{"$project": {"v": 1, "t": 1}}, {"$set": {"v": 1}}], ("_id", "t")),
    ],
)
def test_fields_behind_stages(stages: list[dict[str, Any]], stored: tuple[str, ...]) -> None:
    *_, last = shapes([*stages, {"$limit": 1}])
    assert tuple(field for field in FIELDS if last.has([field])) == stored
    assert last.has([None])


@pytest.mark.parametrize("stage", [{"$limit": 1}, {"$group": {"_id": 1}}, {"$unwind": "$v"}, {"$set": 5}, {}])
def test_other_stages_end_it(stage: dict[str, Any]) -> None:
    assert len(shapes([{"$match": {}}, stage, {"$match": {}}])) == 2
