"""An insert whose body is known goes its short way, and is answered as on the long one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import bson
import pytest
from bson import ObjectId

from catalog.errors import BackendUnavailable, CommandError
from catalog.ports import Acknowledgement
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_reply import InsertReply
from proxy.inserts.insert_templates import InsertTemplate
from proxy.inserts.paced_replies import PacedReplies
from proxy.inserts.plain_insert import PlainInsert
from proxy.request.exchange import Exchange
from proxy.wire.message import Message
from tests.support.exchanges import Told
from tests.support.insert_messages import COLLECTION, DOCUMENTS, Inserting, message, retryable
from tests.support.network import FakeClient
from tests.support.raw_wire import document_of
from tests.support.sessions import session

TELLING = Acknowledgement(fields={"electionId": ObjectId(), "opTime": {"t": 1}, "operationTime": 7})
UNCONFIRMED = Acknowledgement({"code": 64, "errmsg": "waiting for replication timed out"})


def _is_refusal(reply: dict[str, Any]) -> bool:
    return not reply["ok"] or "writeErrors" in reply


class Rooms:
    """What is behind an insert of one measurement."""

    def __init__(self) -> None:
        self.settled_bytes: list[int] = []
        self.counted: list[bool] = []
        self.client = FakeClient()
        self.session = session()
        self.replies = PacedReplies(pytest.fail)

    def done(self, seconds: float, code: int = 0) -> None:
        self.counted.append(bool(code))

    def settled_one(self, size_bytes: int) -> None:
        self.settled_bytes.append(size_bytes)

    def reply(self) -> dict[str, Any]:
        (raw,) = self.client.written
        reply = Message.from_bytes(raw)
        document = document_of(reply)
        assert (reply.response_to, self.client.finished, self.counted) == (7, 1, [_is_refusal(document)])
        return document


@pytest.mark.parametrize("documents", [DOCUMENTS, DOCUMENTS[:1]])
def test_known_insert_is_submitted_as_the_parsed_one_was(documents: tuple[bytes, ...]) -> None:
    inserting = Inserting()
    for raw in (retryable(5, documents=documents), retryable(6, documents=documents)):
        assert inserting.learn(raw)
        (parsed,) = inserting.submitted
        found = inserting.find(raw)
        assert found is not None
        assert (found.documents, found.session, found.txn_number) == (
            parsed.documents, parsed.session, parsed.txn_number,
        )  # fmt: skip
        assert found.template.command(found.documents, found.session, found.txn_number) == parsed.template.command(
            parsed.documents, parsed.session, parsed.txn_number
        )
        inserting.submitted.clear()


def test_what_is_no_plain_insert_is_left_to_others() -> None:
    inserting = Inserting()
    assert not inserting.learn(message(DOCUMENTS[0], body={"insert": "x", "unknown": 1, "$db": "d"}))
    assert not inserting.learn(message(DOCUMENTS[0]), replace(COLLECTION, collation={"locale": "de"}))
    assert not inserting.submitted
    assert inserting.unseen == [DOCUMENTS[0]] * 2


def test_statements_keep_the_numbers_that_the_client_gave_them() -> None:
    inserting = Inserting()
    assert inserting.learn(retryable(5, stmtId=7))
    (submitted,) = inserting.submitted
    insert = submitted.template.command(submitted.documents, submitted.session, submitted.txn_number)
    assert insert.statement_ids is not None
    assert list(insert.statement_ids) == [7]


def started() -> tuple[Rooms, PlainInsert]:
    rooms = Rooms()
    exchange = Exchange(rooms.session, rooms.client, Message.from_bytes(message(DOCUMENTS[1])), Told())
    exchange.meter = rooms
    insert = InsertCommand((), True, b"", b"", None, None, True, 0)
    template = InsertTemplate(Inserting(), insert, COLLECTION)
    return rooms, PlainInsert(rooms, exchange, template, len(DOCUMENTS[1]))


@pytest.mark.parametrize("acknowledgement", [None, Acknowledgement(), TELLING, UNCONFIRMED])
@pytest.mark.parametrize("error", [None, CommandError(2, "bad"), BackendUnavailable("gone")])
def test_one_measurement_gets_the_same_reply_as_from_insert_reply(
    acknowledgement: Acknowledgement | None, error: CommandError | None
) -> None:
    told = None if error is not None else acknowledgement
    rooms, insert = started()
    insert.settle((0,), error, told)
    assert rooms.settled_bytes == [len(DOCUMENTS[1])]
    expected: list[bytes | None] = []
    insert_reply = InsertReply(
        InsertCommand([DOCUMENTS[1]], True, b"", b"", None, None, True, 0), lambda raw, _: expected.append(raw)
    )
    insert_reply.expect()
    insert_reply.staged()
    insert_reply.settle((0,), error, told)
    assert expected[0] is not None
    assert bson.encode(rooms.reply()) == bson.encode(bson.decode(expected[0]))


def test_each_round_has_its_own_acknowledgement() -> None:
    replies = []
    for number in (1, 1, 2):
        rooms, insert = started()
        insert.settle((0,), None, Acknowledgement(fields={"operationTime": number}))
        replies.append(rooms.reply()["operationTime"])
    assert replies == [1, 1, 2]


def test_doubt_is_told_as_an_error() -> None:
    rooms, insert = started()
    assert insert.doubt((0,), BackendUnavailable("unknown"), 5.0) is None
    assert rooms.reply()["ok"] == 0.0
    assert rooms.settled_bytes == [len(DOCUMENTS[1])]


def test_a_whole_reply_is_passed_on() -> None:
    """For an insert that had to wait for its turn."""
    rooms, insert = started()
    insert.reply(bson.encode({"n": 1, "ok": 1.0}), None)
    assert rooms.reply() == {"n": 1, "ok": 1.0}
    assert rooms.settled_bytes == []


def test_a_client_that_is_gone_leaves_its_measurement() -> None:
    rooms, insert = started()
    assert not insert.is_abandoned()
    rooms.session.close()
    assert insert.is_abandoned()


def test_insert_for_the_backend_itself_is_relayed_as_it_came() -> None:
    """Parsed or recognised; each is begun natively once, and nothing is staged."""
    inserting = Inserting()
    inserting.is_native = True
    size_bytes = sum(map(len, DOCUMENTS))
    assert inserting.learn(retryable(5, documents=DOCUMENTS))
    again = retryable(6, documents=DOCUMENTS)
    assert inserting.recognises(again) is not None
    assert b"".join(inserting.transport.written) == again
    assert inserting.relayed == [size_bytes, size_bytes]
    assert inserting.submitted == []
