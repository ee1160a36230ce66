"""Which updates the backend does itself, and what becomes of the others (U1-U4, V1, X1)."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errors import CommandError
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from rewrite.bucket_reads import Selection
from rewrite.commands.update import renamed_parts, rewrite_update
from rewrite.plan import ClearBuckets, Dialogue, PassThrough, Request
from rewrite.profile import Profile

SECONDS = Granularity.SECONDS
X = VirtualCollection(Namespace("db", "x"), TimeseriesOptions("t", "m", SECONDS, 3600, 60))
NO_META = VirtualCollection(Namespace("db", "x"), TimeseriesOptions("t", None, SECONDS, 3600, 60))
AS_IT_IS = PassThrough((ClearBuckets(X.namespace),))
BY_META: dict[str, Any] = {"q": {"m.a": 1}, "u": {"$set": {"m.b": 2}}, "multi": True}
LOOKS_LIKE_A_QUERY = {**BY_META, "q": {"m": {"$in": [{"a": 1}]}}}


def plan(*updates: Any, version: tuple[int, int, int] = (6, 0, 5), in_transaction: bool = False, **options: Any) -> Any:
    body = {"update": "x", "updates": list(updates), **options}
    profile = Profile(version=version)
    return rewrite_update(Request("update", X.namespace, body, X, profile, in_transaction=in_transaction))


def test_u1_updates_by_the_meta_field_and_wrong_ones_are_the_backends() -> None:
    assert plan(BY_META) == plan({**BY_META, "q": {"v": 1}}) == plan({**BY_META, "multi": False}) == AS_IT_IS


def test_u2_a_query_that_the_backend_takes_for_another_is_a_dialogue() -> None:
    assert isinstance(plan(LOOKS_LIKE_A_QUERY), Dialogue)
    assert isinstance(plan(BY_META, LOOKS_LIKE_A_QUERY), Dialogue)


def test_v1_before_5_0_5_the_backend_updates_nothing() -> None:
    assert isinstance(plan(BY_META, version=(5, 0, 4)), Dialogue)
    assert plan(BY_META, version=(5, 0, 5)) == AS_IT_IS


@pytest.mark.parametrize(
    "update",
    [
        5,
        {"q": {}},
        {**LOOKS_LIKE_A_QUERY, "multi": 1},
        {**LOOKS_LIKE_A_QUERY, "foo": 1},
        {**LOOKS_LIKE_A_QUERY, "q": 1},
    ],
    ids=str,
)
def test_the_form_of_a_command_is_the_backends_to_judge(update: Any) -> None:
    assert plan(update) == plan() == plan(LOOKS_LIKE_A_QUERY, foo=1) == AS_IT_IS


def test_x1_so_are_transactions() -> None:
    assert plan(LOOKS_LIKE_A_QUERY, in_transaction=True) == AS_IT_IS


def parts(target: VirtualCollection = X, **changes: Any) -> Any:
    statement = {**BY_META, **changes}
    return renamed_parts(statement, Selection(target, Profile(), statement["q"]))


def test_u3_both_halves_speak_of_the_stored_meta_field() -> None:
    assert parts() == ({"meta.a": 1}, {"$set": {"meta.b": 2}})
    assert parts(q={}, u={"$rename": {"m.a": "m.b"}}) == ({}, {"$rename": {"meta.a": "meta.b"}})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"multi": False}, "non-multi"),
        ({"upsert": True}, "upsert"),
        ({"q": {"v": 1}}, "not the metaField 'm'"),
        ({"q": {"$expr": {"$eq": ["$m", 1]}}}, "$expr"),
        ({"u": [{"$set": {"m": 1}}]}, "pipeline"),
        ({"u": {"m": 1}}, "replacement"),
        ({"u": {"$set": {"v": 1}}}, "not the metaField 'm'"),
        ({"u": {"$rename": {"m.a": "v"}}}, "not the metaField 'm'"),
        ({"target": NO_META}, "does not have a metaField"),
    ],
    ids=str,
)
def test_u1_what_is_refused_and_why(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(CommandError) as caught:
        parts(**changes)
    assert caught.value.code == 72
    assert said in caught.value.message.replace("not the \nmetaField", "not the metaField")


def test_updates_of_buckets_by_name_clear_what_the_catalog_holds() -> None:
    """U6: whoever writes to buckets past the catalog makes it forget them."""
    request = Request("update", X.buckets, {"update": X.buckets.collection}, None, Profile())
    made = rewrite_update(request)
    assert isinstance(made, PassThrough)
    assert any(isinstance(effect, ClearBuckets) for effect in made.effects)
