"""One insert command is answered once, when all its measurements are settled (W67, W90, W95, W97)."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from catalog.errors import BackendUnavailable, CommandError
from catalog.ports import Acknowledgement
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_reply import InsertReply, plain_reply
from tests.support.catalog_parts import Later


class Answers:
    """A command of three documents and what it is answered."""

    def __init__(self, *, ordered: bool = True, expects_reply: bool = True, txn_number: int | None = None) -> None:
        self.raw: list[bytes | None] = []
        insert = InsertCommand([b""] * 3, ordered, b"", b"", txn_number, None, expects_reply, 0)
        self.insert_reply = InsertReply(insert, lambda raw, _: self.raw.append(raw))

    def expect(self, count: int) -> InsertReply:
        for _ in range(count):
            self.insert_reply.expect()
        return self.insert_reply

    @property
    def only(self) -> dict[str, Any]:
        (raw,) = self.raw
        assert raw is not None
        return bson.decode(raw)


def test_the_frequent_reply_is_what_the_codec_makes() -> None:
    assert plain_reply(3) == bson.encode({"n": 3, "ok": 1.0})


def test_nothing_is_said_before_all_is_staged_and_settled() -> None:
    answers = Answers()
    insert_reply = answers.expect(2)
    insert_reply.settle((0,), None, None)
    insert_reply.settle((1,), None, None)
    insert_reply.expect()
    insert_reply.staged()
    assert answers.raw == []
    insert_reply.settle((2,), None, None)
    assert answers.only == {"n": 3, "ok": 1.0}


@pytest.mark.parametrize(("ordered", "told"), [(True, [0]), (False, [0, 2])])
def test_w90_errors_are_told_by_index_an_ordered_insert_tells_the_first(ordered: bool, told: list[int]) -> None:
    answers = Answers(ordered=ordered)
    insert_reply = answers.expect(2)
    insert_reply.refuse(0, CommandError(2, "no time"))
    insert_reply.settle((2,), CommandError(11000, "twice"), None)
    insert_reply.settle((1,), None, None)
    insert_reply.staged()
    assert [error["index"] for error in answers.only["writeErrors"]] == told
    assert (answers.only["n"], answers.only["ok"]) == (1, 1.0)


def test_w95_what_was_said_of_a_whole_command_fails_this_one_as_a_whole() -> None:
    answers = Answers()
    answers.expect(1).settle((0,), CommandError(13, "not authorized", fails_command=True), None)
    answers.insert_reply.staged()
    assert (answers.only["ok"], answers.only["code"]) == (0.0, 13)


LOST = BackendUnavailable("connection lost")


@pytest.mark.parametrize("error", [CommandError(64, "waiting", fails_command=True), LOST])
@pytest.mark.parametrize(("ordered", "told"), [(True, [0]), (False, [0, 2])])
def test_w95_who_will_not_send_again_learns_what_is_stored(error: CommandError, ordered: bool, told: list[int]) -> None:
    answers = Answers(ordered=ordered)
    insert_reply = answers.expect(3)
    insert_reply.settle((0, 2), error, None)
    insert_reply.settle((1,), None, None)
    insert_reply.staged()
    assert (answers.only["n"], answers.only["ok"]) == (1, 1.0)
    assert [(each["index"], each["code"]) for each in answers.only["writeErrors"]] == [(i, error.code) for i in told]


@pytest.mark.parametrize(
    ("error", "ok"), [(CommandError(64, "waiting", fails_command=True), 1.0), (LOST, 0.0)], ids=["final", "retryable"]
)
def test_w95_a_driver_that_will_send_again_is_told_to(error: CommandError, ok: float) -> None:
    answers = Answers(txn_number=5)
    insert_reply = answers.expect(3)
    insert_reply.settle((0, 2), error, None)
    insert_reply.settle((1,), None, None)
    insert_reply.staged()
    assert answers.only["ok"] == ok


def test_w97_write_concern_errors_and_times_are_passed_on() -> None:
    answers = Answers()
    insert_reply = answers.expect(2)
    insert_reply.staged()
    insert_reply.settle((0,), None, Acknowledgement({"code": 64}, {"operationTime": bson.Timestamp(5, 1)}))
    insert_reply.settle((1,), None, Acknowledgement())
    assert answers.only["writeConcernError"] == {"code": 64}
    assert answers.only["operationTime"] == bson.Timestamp(5, 1)


def test_a_lost_backend_brings_labels_that_make_drivers_retry() -> None:
    answers = Answers()
    answers.expect(1).doubt((0,), BackendUnavailable("gone", labels=("RetryableWriteError",)), 0.0)
    answers.insert_reply.staged()
    assert "RetryableWriteError" in answers.only["errorLabels"]


def test_w104_without_a_wish_for_a_reply_there_is_none() -> None:
    answers = Answers(expects_reply=False)
    answers.expect(1).settle((0,), None, None)
    answers.insert_reply.staged()
    assert answers.raw == [None]


class Gone:
    """A client that has disconnected; ``origin`` is its command."""

    origin = "the insert"

    def is_gone(self) -> bool:
        return True


NOT_MET = {"code": 64, "errmsg": "waiting for replication timed out"}


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Acknowledgement(), {"n": 2, "ok": 1.0}),
        (Acknowledgement(NOT_MET, {"opTime": 3}), {"n": 2, "opTime": 3, "writeConcernError": NOT_MET, "ok": 1.0}),
    ],
    ids=["met", "not_met"],
)
def test_w97_what_is_stored_is_not_pending_while_its_write_concern_is_waited_for(
    outcome: Acknowledgement, expected: dict[str, Any]
) -> None:
    answers, stored = Answers(), []
    insert_reply = InsertReply(
        answers.insert_reply._insert, lambda raw, _: answers.raw.append(raw), lambda: stored.append(1), Gone()
    )
    first, second = Later(), Later()
    for index, later in enumerate((first, second)):
        insert_reply.expect()
        insert_reply.settle((index,), None, Acknowledgement(None, {"opTime": index}, later))
    assert stored == []
    assert insert_reply.origins() == ("the insert",)
    insert_reply.staged()
    assert (bool(stored), answers.raw, first.is_gone()) == (True, [], True)
    first.tell(outcome)
    assert answers.raw == []
    second.tell(Acknowledgement())
    assert answers.only == expected


def test_an_outcome_that_nobody_can_know_fails_the_command() -> None:
    answers, later = Answers(), Later()
    insert_reply = answers.expect(1)
    insert_reply.settle((0,), None, Acknowledgement(None, {}, later))
    insert_reply.staged()
    later.tell(BackendUnavailable("another primary", code=189))
    assert (answers.only["ok"], answers.only["code"]) == (0.0, 189)


def test_w104_who_wants_no_reply_waits_for_no_write_concern() -> None:
    answers = Answers(expects_reply=False)
    insert_reply = answers.expect(1)
    insert_reply.settle((0,), None, Acknowledgement(None, {}, Later()))
    insert_reply.staged()
    assert answers.raw == [None]


def test_errors_are_encoded_as_a_server_orders_them() -> None:
    """W90: also those with details, and many that differ in their index only."""
    errors = {
        0: CommandError(2, "bad"),
        3: CommandError(2, "bad"),
        4: CommandError(121, "failed", details={"errInfo": {"a": 1}}),
        5: CommandError(121, "failed", details={"errInfo": {"a": 2}}),
        11: CommandError(2, "worse"),
    }
    replies: list[bytes | None] = []
    insert = InsertCommand([b""] * 12, False, b"", b"", None, None, True, 0)
    reply = InsertReply(insert, lambda document, _: replies.append(document))
    for index, error in errors.items():
        reply.refuse(index, error)
    reply.staged()
    assert replies == [
        bson.encode({"n": 0, "writeErrors": [error.write_error(index) for index, error in errors.items()], "ok": 1.0})
    ]
