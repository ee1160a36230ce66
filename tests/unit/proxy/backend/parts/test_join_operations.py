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
    reading = [stored(each, meta) for each in range(4)]
    return decode(apply_ops(COLLECTION, [reading], replacements, alone=alone))


def compared(condition: dict[str, Any]) -> tuple[list[Any], Any, list[Any]]:
    """The ids of the documents that a condition compares, what it compares, and the expected values."""
    search = condition["q"]["$expr"]["$let"]
    _, difference = search["in"]["$and"]
    actual, expected = difference["$ne"]
    ids = search["vars"]["at"]["$indexOfArray"][0]["$literal"]
    return ids, actual, expected["$arrayElemAt"][0]["$literal"]


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
    (condition,) = command(alone=False)["preCondition"]
    assert compared(condition) == (IDS, "$$ROOT", [decode(stored(number)) for number in range(4)])


METAS = {
    "text": "a",
    "document": {"b": 1},
    "regular expression": Regex("a"),
    "array": [1, 2],
    "condition": {"$gt": 1},
    "path": "$meta",
    "none": NOTHING,
}


@pytest.mark.parametrize("meta", METAS.values(), ids=METAS)
def test_alone_the_meta_value_is_compared_as_a_value(meta: Any) -> None:
    """Whatever it would mean in a query or in an expression."""
    (condition,) = command(alone=True, meta=meta)["preCondition"]
    unchanged = {"closed": True, "version": 1, **({} if meta is NOTHING else {"meta": meta})}
    state = {"closed": "$control.closed", "version": "$control.version", "meta": "$meta"}
    assert compared(condition) == (IDS, state, [unchanged] * 4)


@pytest.mark.parametrize("alone", [True, False])
def test_one_condition_for_each_range_that_was_read(*, alone: bool) -> None:
    """Between the parts of a bucket in two segments lie those of very many others."""
    ids = [ObjectId(f"65920080{segment}aaaaaa00000{number}") for segment in ("0001", "0002") for number in range(4)]
    documents = [encode({"_id": each, "control": {"closed": True}, "data": {}, "meta": "a"}) for each in ids]
    joined = [documents[1], documents[3], documents[4], documents[6]]
    body = decode(
        apply_ops(
            COLLECTION, [documents[:4], documents[4:], documents[7:]], [Replacement(joined, joined[-1])], alone=alone
        )
    )
    conditions = body["preCondition"]
    assert [each["q"]["_id"] for each in conditions] == [
        {"$gte": ids[1], "$lte": ids[3]},
        {"$gte": ids[4], "$lte": ids[6]},
    ]
    assert [compared(each)[0] for each in conditions] == [[ids[1], ids[3]], [ids[4], ids[6]]], "others may change"
    assert [each["res"] for each in conditions] == [{"_id": {"$exists": False}}] * 2
    operations = [(each["op"], (each.get("o2") or each["o"])["_id"]) for each in body["applyOps"]]
    others = [ids[1], ids[3], ids[4]]
    assert operations == [*(("u", each) for each in others), *(("d", each) for each in others), ("u", ids[6])]


def test_ids_of_others_are_refused() -> None:
    with pytest.raises(ValueError, match="ObjectId"):
        id_of(encode({"_id": 1}))
