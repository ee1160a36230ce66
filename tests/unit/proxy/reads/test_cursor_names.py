"""Cursors under the name of the bucket collection (C23)."""

from __future__ import annotations

import bson
from bson import Int64

from catalog.namespaces import Namespace
from proxy.reads.cursor_names import CursorNames, rename_cursor

X = Namespace("db", "x")


def reply(batch: list[dict[str, int]], cursor_id: int, namespace: str) -> bytes:
    """A cursor reply."""
    cursor = {"firstBatch": batch, "id": Int64(cursor_id), "ns": namespace}
    return bson.encode({"cursor": cursor, "ok": 1.0, "operationTime": bson.Timestamp(5, 1)})


def test_c23_only_the_namespace_of_a_cursor_reply_changes() -> None:
    before = reply([{"v": 1}, {"v": 2}], 77, "db.system.buckets.x")
    renamed, cursor_id, backend = rename_cursor(before, X)
    assert renamed == reply([{"v": 1}, {"v": 2}], 77, "db.x")
    assert (cursor_id, backend) == (77, Namespace("db", "system.buckets.x"))


def test_names_with_dots_and_other_alphabets() -> None:
    renamed, _, backend = rename_cursor(reply([], 0, "db.system.buckets.a.b"), Namespace("db", "ä.b"))
    assert renamed == reply([], 0, "db.ä.b")
    assert backend == Namespace("db", "system.buckets.a.b")


def test_an_error_reply_stays_as_it_is() -> None:
    error = bson.encode({"ok": 0.0, "errmsg": "no", "code": 2})
    assert rename_cursor(error, X) == (error, 0, None)


def test_cursors_are_remembered_until_they_end_and_never_without_bound() -> None:
    names = CursorNames(max_remembered=2)
    for cursor_id in (1, 2, 3):
        names.opened(cursor_id, X)
    names.opened(0, X)
    assert len(names) == 2
    assert names.backend_namespace(1) is None
    assert names.backend_namespace(3) == X
    names.ended(3)
    assert names.backend_namespace(3) is None


def test_c23_values_before_and_after_the_name_and_a_reply_of_many_fields_stay() -> None:
    def document(namespace: str) -> bytes:
        cursor = {"partialResultsReturned": True, "id": Int64(5), "ns": namespace, "nextBatch": [{"v": "x" * 70_000}]}
        return bson.encode({"first": 1, "cursor": cursor, "ok": 1.0, "$clusterTime": {"t": 1}})

    renamed, cursor_id, backend = rename_cursor(document("db.system.buckets.x"), X)
    assert renamed == document("db.x")
    assert (cursor_id, backend) == (5, X.buckets)


def test_a_cursor_field_without_a_name_is_no_cursor() -> None:
    for cursor in ({"id": Int64(5)}, 7):
        other = bson.encode({"cursor": cursor, "ok": 1.0})
        assert rename_cursor(other, X) == (other, 0, None)


def test_cursors_of_an_ended_process_are_open_no_more_but_keep_their_names() -> None:
    names = CursorNames()
    names.opened(1, X, b"old")
    names.opened(2, Namespace("other", "x"), b"other")
    names.opened(3, Namespace("unknown", "x"))
    names.process_gone(b"old")
    assert not names.is_open_in("db")
    assert names.is_open_in("other")
    assert names.is_open_in("unknown")
    assert names.backend_namespace(1) == X
    # The reply of the ended process may be processed late, and a cursor of the new one before the old one is missed.
    names.opened(4, X, b"old")
    assert not names.is_open_in("db")
    names.opened(5, X, b"new")
    assert names.is_open_in("db")


def test_a_cursor_that_is_used_again_keeps_its_process() -> None:
    names = CursorNames()
    names.opened(1, X, b"old")
    names.opened(1, X)
    names.process_gone(b"old")
    assert not names.is_open_in("db")
