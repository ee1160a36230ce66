"""Drafts of pipelines."""

from __future__ import annotations

from rewrite.stages.draft import Draft, keys_inside, only, walk
from tests.support.scopes import OLD_SCOPE, SCOPE, draft

UNPACK = {"timeField": "t", "metaField": "m", "bucketMaxSpanSeconds": 3600}


def test_stages() -> None:
    """Head, unpacking, tail."""
    whole = draft({"$limit": 1}).with_head({"$match": {"meta": 1}})
    assert whole.stages(SCOPE) == [{"$match": {"meta": 1}}, {"$_internalUnpackBucket": UNPACK}, {"$limit": 1}]


def test_options_of_the_unpacking() -> None:
    """Q7: flags that exist only since 6.0 are not sent before."""
    full = Draft((), (), include=("v",), computed=("c",), inhibits=True, extended_range=True)
    options = {**UNPACK, "include": ["v"], "computedMetaProjFields": ["c"]}
    inhibit: dict[str, object] = {"$_internalInhibitOptimization": {}}
    assert full.stages(SCOPE) == [{"$_internalUnpackBucket": {**options, "usesExtendedRange": True}}, inhibit]
    assert full.stages(OLD_SCOPE) == [{"$_internalUnpackBucket": options}, inhibit]


def test_nothing_to_unpack() -> None:
    assert draft({"$limit": 1}, unpacks=False).stages(SCOPE) == [{"$limit": 1}]


def test_looking_into_stages() -> None:
    assert only({"$match": 1}) == ("$match", 1)
    assert only({}) == only({"a": 1, "b": 2}) == ("", None)
    assert list(walk([{"a": 1}])) == [[{"a": 1}], {"a": 1}, 1]
    assert keys_inside({"a": [{"b": 1}], "c": ({"d": {"a": 1}},)}) == {"a", "b", "c", "d"}
