"""Guarded writes to buckets: what is sent, and what an error ends (U8, W125, X2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson
import pytest
from bson import Int64, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS

from catalog.errors import CommandError
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from rewrite.bucket_reads import Selection
from rewrite.bucket_writes import (
    EMPTY_BUCKET,
    SMALL_BUCKET_BYTES,
    ExecutedMeanwhile,
    Removal,
    WholeCommandFailed,
    checked,
    unchanged,
)
from rewrite.plan import Step, Via
from rewrite.profile import Profile
from tests.support.mongod import MongodProcess

X = VirtualCollection(Namespace("db", "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))
SELECTION = Selection(X, Profile(), {"v": 1}, common={"comment": "c"})
ID = ObjectId()
GUARD = {"_id": ID}
STORED = bson.encode({"_id": ID})


def said(talk: Any, reply: Mapping[str, Any]) -> tuple[Step, Any]:
    """The one step of a talk and its result."""
    step = next(talk)
    with pytest.raises(StopIteration) as stop:
        talk.send(reply)
    return step, stop.value.value


def test_deletes_go_over_the_proxys_account_one_for_each_guard() -> None:
    step, deleted = said(Removal().delete(SELECTION, [GUARD, GUARD]), {"ok": 1, "n": 2})
    assert (step.via, step.database, deleted) == (Via.SERVICE, "db", 2)
    assert [each["limit"] for each in step.body["deletes"]] == [1, 1]
    assert (step.body["delete"], step.body["comment"]) == (X.buckets.collection, "c")


@pytest.mark.parametrize("matched", [0, 1])
def test_w125_a_change_says_whether_the_bucket_was_what_was_read(matched: int) -> None:
    step, changed = said(Removal().change(SELECTION, GUARD, STORED, EMPTY_BUCKET), {"ok": 1, "n": matched})
    assert changed is bool(matched)
    assert step.body["updates"][0]["q"] == GUARD
    assert step.body["bypassDocumentValidation"] is True


def test_an_emptied_bucket_is_deleted() -> None:
    step, changed = said(Removal().change(SELECTION, GUARD, STORED, None), {"ok": 1, "n": 1})
    assert next(iter(step.body)) == "delete"
    assert changed


@pytest.mark.parametrize("bucket", [EMPTY_BUCKET, None])
def test_x2_recorded_statements_keep_the_bucket_as_it_was(bucket: bytes | None) -> None:
    talk = Removal(keeps_images=True).change(SELECTION, GUARD, STORED, bucket, 3)
    step, changed = said(talk, {"ok": 1, "value": {"_id": ID}})
    assert (next(iter(step.body)), step.statement, changed) == ("findAndModify", 3, True)


def test_x2_a_statement_that_another_copy_of_the_command_has_executed() -> None:
    """The backend then returns the bucket that the other one has changed, or says that it was deleted."""
    for keeps_images, reply in (
        (True, {"ok": 1, "value": {"_id": ID, "control": {}}}),
        (True, {"ok": 0, "code": 40606}),
        (False, {"ok": 0, "code": 40638}),
    ):
        with pytest.raises(ExecutedMeanwhile):
            said(Removal(keeps_images=keeps_images).change(SELECTION, GUARD, STORED, EMPTY_BUCKET, 3), reply)
    with pytest.raises(CommandError):
        said(Removal().change(SELECTION, GUARD, STORED, EMPTY_BUCKET), {"ok": 0, "code": 40638})


@pytest.mark.parametrize(
    ("concern", "sent"),
    [({"w": "majority"}, {"w": "majority"}), ({"w": False}, {"w": False}), ({"w": 0}, None), (None, None)],
)
def test_w104_the_write_concern_is_the_clients_but_always_acknowledged(concern: Any, sent: Any) -> None:
    step, _ = said(Removal(concern).delete(SELECTION, [GUARD]), {"ok": 1, "n": 0})
    assert step.body.get("writeConcern") == sent


def test_what_the_backend_said_of_the_write_is_kept_for_the_reply() -> None:
    removal = Removal()
    said(removal.delete(SELECTION, [GUARD]), {"ok": 1, "n": 0, "operationTime": 5, "writeConcernError": {"code": 64}})
    assert removal.acknowledged == {"operationTime": 5, "writeConcernError": {"code": 64}}


def test_a_refused_write_ends_the_whole_command() -> None:
    talk = Removal().delete(SELECTION, [GUARD])
    next(talk)
    with pytest.raises(WholeCommandFailed) as caught:
        talk.send({"ok": 0, "code": 8000, "errmsg": "no", "errorLabels": ["L"]})
    assert (caught.value.code, caught.value.labels) == (8000, ("L",))


@pytest.mark.parametrize(("code", "whole"), [(13, True), (10107, True), (2, False)])
def test_errors_of_the_node_or_the_session_end_the_whole_command(code: int, whole: bool) -> None:
    with pytest.raises(CommandError) as caught:
        checked({"ok": 0, "code": code, "errmsg": ""})
    assert isinstance(caught.value, WholeCommandFailed) is whole


@pytest.mark.parametrize("size_bytes", [0, SMALL_BUCKET_BYTES])
def test_w125_a_guard_fits_into_a_command_even_for_a_large_bucket(size_bytes: int) -> None:
    times = {"0": DatetimeMS(5)}
    bucket = bson.encode({"_id": ID, "control": {"version": 1}, "data": {"t": times, "v": {"0": "x" * size_bytes}}})
    guard = unchanged(ID, bucket, "t")
    assert guard["_id"] == ID
    assert len(bson.encode(guard)) < SMALL_BUCKET_BYTES


@pytest.mark.parametrize("keeps_images", [False, True])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, 1.0),
        ({"a": Int64(1)}, {"a": 1.0}),
        ({"a": 0.0}, {"a": -0.0}),
        ("a", "b"),
        (Timestamp(0, 0), Timestamp(0, 0)),
    ],
    ids=str,
)
def test_w125_a_change_of_rows_undoes_no_change_of_meta(
    mongod: MongodProcess, db_name: str, before: Any, after: Any, keeps_images: bool
) -> None:
    """For a guard some values of another type are equal, so a change writes no meta; nor can a server replace one."""
    database = mongod.shared_client[db_name]
    database.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    buckets = database["system.buckets.x"]
    start = DatetimeMS(1_704_067_200_000)
    least = {"t": start, "v": 0}

    def stored(meta: Any, rows: int) -> dict[str, Any]:
        columns = {name: {str(row): value for row in range(rows)} for name, value in least.items()}
        return {"_id": ID, "control": {"version": 1, "min": least, "max": least}, "meta": meta, "data": columns}

    def set_meta(meta: Any) -> None:
        buckets.update_one({"_id": ID}, [{"$set": {"meta": {"$literal": meta}}}])

    buckets.insert_one(stored("", 2), bypass_document_validation=True)
    set_meta(before)
    was = bson.encode(stored(before, 2))
    guard = unchanged(ID, was, "t")
    removal = Removal(keeps_images=keeps_images)
    step = next(removal.change(Selection(X, Profile(), {}), guard, was, bson.encode(stored(before, 1)), 1))
    set_meta(after)
    reply = database.command(dict(step.body))
    found = buckets.find_one({"_id": ID})
    assert found is not None
    assert bson.encode({"m": found["meta"]}) == bson.encode({"m": after})
    changed = reply["value"] is not None if keeps_images else reply["n"] == 1
    assert len(found["data"]["v"]) == (1 if changed else 2)
    assert changed or before != Timestamp(0, 0)
