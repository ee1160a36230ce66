"""What others write to the parts of a bucket while they are joined, and which rows there are after it."""

from __future__ import annotations

from typing import Any

from bson import Decimal128, Int64
from pymongo.collection import Collection

from tests.support.part_store_case import Ids, Others, part


def rewritten(buckets: Collection[Any], ids: Ids) -> None:
    """As a removal of some of the rows does."""
    buckets.replace_one({"_id": ids[0]}, {"_id": ids[0], **part(0, rows=2)})


OTHERS: dict[str, tuple[Others, list[Any]]] = {
    "a part in the middle is deleted": (lambda buckets, ids: buckets.delete_one({"_id": ids[1]}), [0, 0, 0, 2]),
    "the first part is deleted": (lambda buckets, ids: buckets.delete_one({"_id": ids[0]}), [1, 2]),
    "the last part is deleted": (lambda buckets, ids: buckets.delete_one({"_id": ids[2]}), [0, 0, 0, 1]),
    "rows are taken away": (rewritten, [0, 0, 1, 2]),
    "the meta value is changed": (
        lambda buckets, ids: buckets.update_one({"_id": ids[1]}, {"$set": {"meta": "b"}}),
        [0, 0, 0, 1, 2],
    ),
}
"""As other processes of the proxy do, or somebody by hand: one document, and the others later or never.

The parts have three rows, one, and one.
"""

NATIVELY: dict[str, tuple[Others, list[Any]]] = {
    "all are deleted": (lambda buckets, ids: buckets.database["c"].delete_many({"m": "a"}), []),
    "the meta value is changed": (
        lambda buckets, ids: buckets.database["c"].update_many({"m": "a"}, {"$set": {"m": "b"}}),
        [("b", 0), ("b", 1), ("b", 2)],
    ),
    "a delete has only begun": (lambda buckets, ids: buckets.delete_one({"_id": ids[0]}), [("a", 1), ("a", 2)]),
    "a delete in another order has only begun": (
        lambda buckets, ids: buckets.delete_one({"_id": ids[2]}),
        [("a", 0), ("a", 1)],
    ),
    "a delete in any order has only begun": (
        lambda buckets, ids: buckets.delete_one({"_id": ids[1]}),
        [("a", 0), ("a", 2)],
    ),
    "a change of meta in another order has only begun": (
        lambda buckets, ids: buckets.update_one({"_id": ids[2]}, {"$set": {"meta": "b"}}),
        [("a", 0), ("a", 1), ("b", 2)],
    ),
    "a change of meta has only begun": (
        lambda buckets, ids: buckets.update_one({"_id": ids[0]}, {"$set": {"meta": "b"}}),
        [("b", 0), ("a", 1), ("a", 2)],
    ),
}
"""As a server does, by the meta value, in whatever order; each part has one row."""

WAITING: dict[str, tuple[Others, list[Any]]] = {
    "a delete": (lambda buckets, ids: buckets.database["c"].delete_many({"m": "a"}), []),
    "a delete in another order": (
        lambda buckets, ids: buckets.database["c"].delete_many({"m": "a"}, hint="descending"),
        [],
    ),
    "a change of meta": (
        lambda buckets, ids: buckets.database["c"].update_many({"m": "a"}, {"$set": {"m": "b"}}),
        [("b", 0), ("b", 1), ("b", 2)],
    ),
    "an append": (
        lambda buckets, ids: buckets.update_one(
            {"_id": ids[1], "data.v.1": {"$exists": False}}, {"$set": {"data.v.1": 1}}
        ),
        [("a", 0), ("a", 1), ("a", 2)],
    ),
}
"""Those that wait for the end of a transaction, which has locked the parts; each part has one row."""

EQUAL: dict[str, tuple[object, object]] = {
    "of another type": (1, 1.0),
    "of the same size": (Int64(1), 1.0),
    "in an object": ({"a": 1}, {"a": 1.0}),
    "in an object, of the same size": ({"a": {"b": Int64(1)}}, {"a": {"b": 1.0}}),
    "in an array": ([Int64(1)], [1.0]),
    "with another sign": ({"a": 0.0}, {"a": -0.0}),
    "with more digits": ({"a": Decimal128("1.0")}, {"a": Decimal128("1.00")}),
}
"""Meta values that a server takes for equal."""
