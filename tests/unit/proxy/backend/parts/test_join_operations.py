"""What a standalone is told (that it does so is shown on real servers in ``test_part_store.py``)."""

from __future__ import annotations

from typing import Any

import pytest
from bson import ObjectId, Regex
from bson.binary import Binary

from catalog.bson.codec import decode, encode
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from catalog.parts import id_of
from proxy.backend.parts.join_operations import Replacement, apply_ops

COLLECTION = VirtualCollection(
    Namespace("d", "c"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60), bytes(16)
)
IDS = [ObjectId(f"65920080aaaaaaaaaa00000{number}") for number in range(4)]
NOTHING = object()


def stored(number: int, meta: Any = "a") -> bytes:
    return encode(
        {"_id": IDS[number], "control": {"closed": True}, "data": {}, **({} if meta is NOTHING else {"meta": meta})}
    )


def command(*, alone: bool, meta: Any = "a") -> dict[str, Any]:
    pairs = [(0, 1), (2, 3)]
    replacements = [Replacement([stored(each, meta) for each in pair], stored(pair[1], meta)) for pair in pairs]
    return decode(apply_ops(COLLECTION, replacements, alone=alone))


def test_each_bucket_is_asked_for_emptied_and_filled_in_turn() -> None:
    """Of each part it is asked whether it is there: a native delete may have taken any of them."""
    body = command(alone=True)
    operations = [(each["op"], (each.get("o2") or each["o"])["_id"]) for each in body["applyOps"]]
    assert operations == [
        *(("u", IDS[0]), ("d", IDS[0]), ("u", IDS[1])),
        *(("u", IDS[2]), ("d", IDS[2]), ("u", IDS[3])),
    ]
    assert all(each["ns"] == "d.system.buckets.c" for each in body["applyOps"])
    assert all(each["ui"] == Binary(bytes(16), 4) for each in body["applyOps"])
    assert body["alwaysUpsert"] is False, "or the first operation would bring back what is gone"


def test_beside_others_each_document_is_compared() -> None:
    conditions = command(alone=False)["preCondition"]
    assert [each["q"] for each in conditions] == [{"_id": each} for each in IDS]
    assert [each["res"] for each in conditions] == [decode(stored(number)) for number in range(4)]


@pytest.mark.parametrize(
    ("meta", "other"),
    [("a", {"$ne": "a"}), ({"b": 1}, {"$ne": {"b": 1}}), (NOTHING, {"$exists": True})],
    ids=["text", "document", "none"],
)
def test_alone_one_condition_for_each_bucket_is_enough(meta: Any, other: dict[str, Any]) -> None:
    conditions = command(alone=True, meta=meta)["preCondition"]
    assert [each["q"]["_id"] for each in conditions] == [
        {"$gte": IDS[0], "$lte": IDS[1]},
        {"$gte": IDS[2], "$lte": IDS[3]},
    ]
    assert [each["q"]["$or"][0] for each in conditions] == [{"meta": other}] * 2
    assert [each["res"] for each in conditions] == [{"_id": {"$exists": False}}] * 2


def test_alone_each_segment_has_a_condition_of_its_own() -> None:
    """Between the parts of a bucket in two segments lie those of very many others."""
    ids = [ObjectId(f"65920080{segment}aaaaaa00000{number}") for segment in ("0001", "0002") for number in range(3)]
    parts = [encode({"_id": each, "control": {"closed": True}, "data": {}, "meta": "a"}) for each in (*ids[1:], ids[0])]
    body = decode(apply_ops(COLLECTION, [Replacement(parts, parts[-1])], alone=True))
    assert [each["q"]["_id"] for each in body["preCondition"]] == [
        {"$gte": ids[1], "$lte": ids[2]},
        {"$gte": ids[3], "$lte": ids[5]},
        {"$gte": ids[0], "$lte": ids[0]},
    ]
    assert [each["q"]["$or"][0] for each in body["preCondition"]] == [{"meta": {"$ne": "a"}}] * 3
    operations = [(each["op"], (each.get("o2") or each["o"])["_id"]) for each in body["applyOps"]]
    assert operations == [*(("u", each) for each in ids[1:]), *(("d", each) for each in ids[1:]), ("u", ids[0])]


@pytest.mark.parametrize("meta", [Regex("a"), [1, 2], {"$gt": 1}], ids=str)
def test_meta_that_means_something_else_in_a_query_is_compared_as_a_value(meta: Any) -> None:
    assert len(command(alone=True, meta=meta)["preCondition"]) == 4


def test_ids_of_others_are_refused() -> None:
    with pytest.raises(ValueError, match="ObjectId"):
        id_of(encode({"_id": 1}))
