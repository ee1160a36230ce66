"""What the reply to a bulk write says (W70, W72, W127)."""

from __future__ import annotations

from typing import Any

import pytest
from bson import ObjectId, Timestamp, encode

from catalog.errors import CommandError
from catalog.namespaces import Namespace
from catalog.ports import Acknowledgement, Applied, Rejected, Unknown, WriteConcern
from proxy.backend.bulk_write import bulk_write, is_plain_success, outcome_of, outcome_of_reply
from proxy.backend.replication_wait import Attempt
from proxy.backend.service import ServicePool
from proxy.backend.service_connection import LostAfterSending, NotSent


def test_a_plain_success_tells_its_count() -> None:
    assert outcome_of({"n": 3, "nModified": 3, "ok": 1.0}) == Applied(3, {}, Acknowledgement())


def test_w70_what_a_replica_set_adds_is_passed_on() -> None:
    times = {"opTime": 1, "electionId": ObjectId(), "operationTime": Timestamp(1, 1), "$clusterTime": {}}
    outcome = outcome_of({"n": 1, **times, "ok": 1.0, "writeConcernError": {"code": 64}})
    assert isinstance(outcome, Applied)
    assert outcome.acknowledgement.fields == times
    assert outcome.acknowledgement.write_concern_error == {"code": 64}


def test_errors_are_told_by_statement() -> None:
    outcome = outcome_of({"n": 1, "writeErrors": [{"index": 1, "code": 11000, "errmsg": "twice"}], "ok": 1.0})
    assert isinstance(outcome, Applied)
    assert {index: error.code for index, error in outcome.errors.items()} == {1: 11000}


def test_w90_values_in_an_error_are_for_the_client_of_the_document_only() -> None:
    entry = {"index": 0, "code": 11000, "errmsg": "twice", "keyPattern": {"a": 1}, "keyValue": {"a": 5}}
    reply = {"n": 0, "writeErrors": [entry], "ok": 1.0}
    shared, own = outcome_of(reply), outcome_of(reply, message_of=lambda entry: str(entry["errmsg"]))
    assert isinstance(shared, Applied)
    assert isinstance(own, Applied)
    assert shared.errors[0].details == {}
    assert own.errors[0].write_error(0) == entry


@pytest.mark.parametrize("code", [91, 189, 10107, 11600, 11602])
@pytest.mark.parametrize(
    "reply",
    [
        lambda code: {"ok": 0.0, "code": code, "errmsg": ""},
        lambda code: {"ok": 1.0, "n": 0, "writeErrors": [{"index": 0, "code": code}]},
        lambda code: {"ok": 1.0, "n": 1, "writeConcernError": {"code": code}},
    ],
)
def test_w127_a_member_that_steps_down_may_have_applied_a_part(code: int, reply: Any) -> None:
    assert isinstance(outcome_of(reply(code)), Unknown)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ({"ok": 0.0, "code": 13, "errmsg": "not authorized"}, 13),
        ({"ok": 0.0, "code": 361, "errmsg": ""}, 361),
        ({"ok": 1.0, "n": 0, "writeErrors": [{"index": 0, "code": 26}]}, 26),
    ],
    ids=str,
)
def test_w72_refusals_of_the_whole_command(reply: dict[str, Any], code: int) -> None:
    outcome = outcome_of(reply)
    assert isinstance(outcome, Rejected)
    assert outcome.error.code == code


@pytest.mark.parametrize(
    ("reply", "is_plain"),
    [
        ({"n": 3, "ok": 1.0}, True),
        ({"n": 3, "nModified": 2, "ok": 1.0}, True),
        ({"n": 3, "nModifiex": 2, "ok": 1.0}, False),
        ({"n": 3, "nModified": 2.0, "ok": 1.0}, False),
        ({"n": 3, "ok": 1}, False),
        ({"n": 3, "ok": 0.0}, False),
        ({"m": 3, "ok": 1.0}, False),
        ({"n": 3, "ok": 1.0, "x": 1.0}, False),
        ({"ok": 1.0}, False),
        ({}, False),
    ],
    ids=str,
)
def test_only_counts_and_success_are_plain(reply: dict[str, Any], is_plain: bool) -> None:
    assert is_plain_success(encode(reply)) is is_plain


@pytest.mark.parametrize(
    "reply",
    [
        {"n": 3, "ok": 1.0},
        {"n": 3, "nModified": 2, "ok": 1.0},
        {"n": 1, "writeErrors": [{"index": 1, "code": 11000, "errmsg": "twice"}], "ok": 1.0},
        {"n": 3, "ok": 1.0, "writeConcernError": {"code": 64, "errmsg": ""}},
        {"ok": 0.0, "code": 13, "errmsg": "not authorized"},
        {"ok": 0.0, "n": 3},
        {"n": 3, "ok": 0.0, "code": 13, "errmsg": "not authorized"},
        {"n": 3, "writeError": 2, "ok": 1.0},
    ],
    ids=str,
)
def test_a_raw_reply_says_the_same_as_a_decoded_one(reply: dict[str, Any]) -> None:
    raw, decoded = outcome_of_reply(encode(reply), 1.0), outcome_of(reply, None, 1.0)
    assert type(raw) is type(decoded)
    if isinstance(raw, Applied) and isinstance(decoded, Applied):
        assert (raw.matched, raw.errors.keys()) == (decoded.matched, decoded.errors.keys())
        assert raw.acknowledgement == decoded.acknowledgement
        assert raw.acknowledgement.sent_at_seconds == 1.0 < raw.acknowledgement.answered_at_seconds


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NotSent("all connections to the backend are busy"), Rejected),
        (LostAfterSending("no answer in time"), Unknown),
        (CommandError(18, "authentication failed"), Rejected),
    ],
    ids=str,
)
async def test_w127_what_was_not_sent_was_not_applied(error: CommandError, outcome: type[Rejected | Unknown]) -> None:
    async def primary(timeout_seconds: float) -> tuple[str, int]:
        raise error

    async def send(attempt: Attempt) -> bytes:
        raise error

    pool = ServicePool(primary, None, None, 5.0)
    told = await bulk_write(pool, None, WriteConcern(), Namespace("d", "x"), send)
    assert isinstance(told, outcome)
    assert told.error is error
