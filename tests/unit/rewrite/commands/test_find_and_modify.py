"""``findAndModify``: removes are a dialogue, everything else is the backend's to refuse (U8, C23, X1)."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.raw_bson import RawBSONDocument

from catalog.errors import WRITE_CONFLICT, CommandError
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from catalog.queries import NO_DOCUMENT
from rewrite.commands.find_and_modify import rewrite_find_and_modify
from rewrite.plan import ClearBuckets, Dialogue, PassThrough, Request, Step, Via
from rewrite.profile import Profile

X = VirtualCollection(Namespace("db", "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))
REMOVE: dict[str, Any] = {"findAndModify": "x", "query": {"v": 1}, "remove": True}


def plan(*, in_transaction: bool = False, **fields: Any) -> Any:
    body = {**REMOVE, **fields}
    request = Request("findAndModify", X.namespace, body, X, Profile(), in_transaction=in_transaction)
    return rewrite_find_and_modify(request)


@pytest.mark.parametrize("fields", [{}, {"sort": {"t": -1}}, {"fields": {"v": 1}}, {"query": None}], ids=str)
def test_u8_removes_are_a_dialogue(fields: dict[str, Any]) -> None:
    assert isinstance(plan(**fields), Dialogue)


@pytest.mark.parametrize(
    "fields",
    [
        {"remove": False, "update": {"$set": {"m": 1}}},
        {"remove": 1},
        {"new": True},
        {"upsert": True},
        {"sort": 1},
        {"hint": 5},
        {"foo": 1},
        {"readConcern": {"level": "snapshot"}},
    ],
    ids=str,
)
def test_c23_everything_else_is_the_backends_to_refuse(fields: dict[str, Any]) -> None:
    assert plan(**fields) == PassThrough()


def test_x1_so_are_transactions() -> None:
    assert plan(in_transaction=True) == PassThrough()


def test_without_a_match_a_write_of_nothing_waits_for_the_write_concern_and_the_value_is_null() -> None:
    talk = plan().run()
    step = next(talk)
    assert isinstance(step, Step)
    assert (next(iter(step.body)), step.via) == ("aggregate", Via.SERVICE)
    step = talk.send({"cursor": {"id": 0, "firstBatch": []}, "ok": 1})
    assert isinstance(step, Step)
    assert (step.body["delete"], [each["q"] for each in step.body["deletes"]]) == ("system.buckets.x", [NO_DOCUMENT])
    with pytest.raises(StopIteration) as stop:
        talk.send({"n": 0, "writeConcernError": {"code": 100}, "ok": 1, "operationTime": 5})
    reply = {"lastErrorObject": {"n": 0}, "value": None, "writeConcernError": {"code": 100}, "ok": 1.0}
    assert stop.value.value == {**reply, "operationTime": 5}


def test_a_match_that_cannot_be_removed_ends_with_a_conflict() -> None:
    """Its bucket has another row each time that it is read: perhaps the collection is another one now."""
    bucket_id = ObjectId()
    talk = plan().run()

    def answer(step: Step) -> Any:
        stages = [next(iter(stage)) for stage in step.body["pipeline"]]
        row: dict[str, Any] = {"t": 1, "v": 1}
        if stages == ["$match"]:
            row = {"_id": bucket_id, "control": {"version": 1}, "data": {}}
        elif "$addFields" in stages:
            row = {"tsproxy bucket": {"id": bucket_id}, "v": 2}
        batch = [RawBSONDocument(bson.encode(row))] if step.raw else [row]
        return {"cursor": {"id": 0, "firstBatch": batch}, "ok": 1}

    def converse() -> None:
        said: Any = next(talk)
        for _ in range(10_000):
            said = talk.send(answer(said)) if isinstance(said, Step) else next(talk)

    with pytest.raises(CommandError) as caught:
        converse()
    assert caught.value.code == WRITE_CONFLICT


def test_on_buckets_by_name_it_clears_what_the_catalog_holds() -> None:
    request = Request("findAndModify", X.buckets, {"findAndModify": ""}, None, Profile())
    made = rewrite_find_and_modify(request)
    assert isinstance(made, PassThrough)
    assert any(isinstance(effect, ClearBuckets) for effect in made.effects)
