"""Guarded writes to buckets: what is sent, and what an error ends (U8, W125, X2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from catalog.errors import CommandError
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from rewrite.bucket_reads import Selection
from rewrite.bucket_writes import SMALL_BUCKET_BYTES, Removal, WholeCommandFailed, checked, unchanged
from rewrite.plan import Step, Via
from rewrite.profile import Profile

X = VirtualCollection(Namespace("db", "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))
SELECTION = Selection(X, Profile(), {"v": 1}, common={"comment": "c"})
ID = ObjectId()
GUARD = {"_id": ID}
EMPTY = bson.encode({})


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
    step, changed = said(Removal().change(SELECTION, GUARD, EMPTY), {"ok": 1, "n": matched})
    assert changed is bool(matched)
    assert step.body["updates"][0]["q"] == GUARD
    assert step.body["bypassDocumentValidation"] is True


def test_an_emptied_bucket_is_deleted() -> None:
    step, changed = said(Removal().change(SELECTION, GUARD, None), {"ok": 1, "n": 1})
    assert next(iter(step.body)) == "delete"
    assert changed


@pytest.mark.parametrize("bucket", [EMPTY, None])
def test_x2_recorded_statements_keep_the_bucket_as_it_was(bucket: bytes | None) -> None:
    talk = Removal(keeps_images=True).change(SELECTION, GUARD, bucket, 3)
    step, changed = said(talk, {"ok": 1, "value": {"_id": ID}})
    assert (next(iter(step.body)), step.statement, changed) == ("findAndModify", 3, True)


@pytest.mark.parametrize(("concern", "sent"), [({"w": "majority"}, {"w": "majority"}), ({"w": 0}, None), (None, None)])
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
