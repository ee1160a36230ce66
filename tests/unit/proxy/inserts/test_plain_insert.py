"""An insert whose body is known goes its short way, and is answered as on the long one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import bson
import pytest
from bson import ObjectId

from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import Namespace, VirtualCollection
from catalog.ports import Acknowledgement
from proxy.inserts.insert_command import MAX_DOCUMENTS, InsertCommand
from proxy.inserts.insert_reply import InsertReply
from proxy.inserts.insert_templates import InsertTemplate
from proxy.inserts.plain_insert import Inserts, PlainInsert
from proxy.request.command import parse_command
from proxy.request.exchange import Exchange
from proxy.request.session import Session
from proxy.wire.message import Message
from tests.support.exchanges import Told
from tests.support.insert_messages import COLLECTION, DOCUMENTS, Meter, message, retryable
from tests.support.network import FakeClient
from tests.support.raw_wire import document_of
from tests.support.sessions import session

TELLING = Acknowledgement(fields={"electionId": ObjectId(), "opTime": {"t": 1}, "operationTime": 7})
UNCONFIRMED = Acknowledgement({"code": 64, "errmsg": "waiting for replication timed out"})


class Rooms:
    """What is behind a recognised insert."""

    retryable_writes = True

    def __init__(self, *, allowed: bool | None = True, collection: VirtualCollection | None = COLLECTION) -> None:
        self.allowed = allowed
        self.collection = collection
        self.submitted: list[tuple[InsertTemplate, tuple[bytes, ...], int | None]] = []
        self.settled_bytes: list[int] = []
        self.meter = Meter()
        self.client = FakeClient()
        self.session = session()
        self.inserts = Inserts(self, self, self, self.meter)

    def submit(
        self, exchange: Exchange, template: InsertTemplate, documents: Sequence[bytes], txn_number: int | None
    ) -> None:
        self.submitted.append((template, tuple(documents), txn_number))

    def settled_one(self, size_bytes: int) -> None:
        self.settled_bytes.append(size_bytes)

    def lookup(self, namespace: Namespace) -> Any:
        return self.collection

    async def resolve(self, namespace: Namespace) -> Any:
        raise AssertionError

    def is_stranger(self, session: Session) -> bool:
        raise AssertionError

    def known(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool | None:
        assert actions == ("insert",)
        return self.allowed

    async def allows(self, session: Session, actions: tuple[str, ...], namespace: Namespace) -> bool:
        raise AssertionError

    def exchange(self, raw: bytes) -> Exchange:
        return Exchange(self.session, self.client, Message.from_bytes(raw), Told())

    def parsed(self, raw: bytes, collection: VirtualCollection = COLLECTION) -> bool:
        return self.inserts.submit(self.exchange(raw), parse_command(Message.from_bytes(raw)), collection)

    def start(self, raw: bytes) -> Exchange | None:
        return self.inserts.start(session(), Message.from_bytes(raw), self.client, Told())

    def reply(self) -> dict[str, Any]:
        (raw,) = self.client.written
        reply = Message.from_bytes(raw)
        assert (reply.response_to, self.client.finished, self.meter.counted) == (7, 1, [False])
        return document_of(reply)


@pytest.mark.parametrize(
    "rooms", [Rooms(allowed=None), Rooms(allowed=False), Rooms(collection=None)], ids=["unasked", "refused", "gone"]
)
def test_what_may_have_changed_takes_the_long_way(rooms: Rooms) -> None:
    assert rooms.parsed(message(DOCUMENTS[0]))
    assert rooms.start(message(DOCUMENTS[1])) is None
    assert len(rooms.submitted) == 1


def test_an_unknown_body_takes_the_long_way() -> None:
    rooms = Rooms()
    assert rooms.parsed(message(DOCUMENTS[0]))
    assert rooms.start(message(DOCUMENTS[1], body={"insert": "y", "$db": "d"})) is None


@pytest.mark.parametrize("documents", [DOCUMENTS, DOCUMENTS[:1]])
def test_known_insert_is_submitted_as_the_parsed_one_was(documents: tuple[bytes, ...]) -> None:
    rooms = Rooms()
    assert rooms.parsed(retryable(5))
    assert rooms.start(retryable(6, documents=documents)) is not None
    (first, _, five), (second, submitted, six) = rooms.submitted
    assert (submitted, five, six) == (documents, 5, 6)
    assert first.command(documents, 6) == second.command(documents, 6)


def test_what_is_no_plain_insert_is_left_to_others() -> None:
    rooms = Rooms()
    assert not rooms.parsed(message(DOCUMENTS[0], body={"insert": "x", "unknown": 1, "$db": "d"}))
    assert not rooms.parsed(message(DOCUMENTS[0]), replace(COLLECTION, collation={"locale": "de"}))
    assert not rooms.submitted


def test_statements_keep_the_numbers_that_the_client_gave_them() -> None:
    rooms = Rooms()
    assert rooms.parsed(retryable(5, stmtId=7))
    ((template, documents, number),) = rooms.submitted
    insert = template.command(documents, number)
    assert insert.statement_ids is not None
    assert list(insert.statement_ids) == [7]


def started() -> tuple[Rooms, PlainInsert]:
    rooms = Rooms()
    exchange = rooms.exchange(message(DOCUMENTS[1]))
    exchange.meter = rooms.meter
    insert = InsertCommand((), True, b"", b"", None, None, True, 0)
    return rooms, PlainInsert(rooms, exchange, InsertTemplate(insert, COLLECTION, ("insert",)), len(DOCUMENTS[1]))


@pytest.mark.parametrize("acknowledgement", [None, Acknowledgement(), TELLING, UNCONFIRMED])
@pytest.mark.parametrize("error", [None, CommandError(2, "bad"), BackendUnavailable("gone")])
def test_one_measurement_is_answered_as_by_a_submission(
    acknowledgement: Acknowledgement | None, error: CommandError | None
) -> None:
    told = None if error is not None else acknowledgement
    rooms, insert = started()
    insert.settle((0,), error, told)
    assert rooms.settled_bytes == [len(DOCUMENTS[1])]
    expected: list[bytes | None] = []
    submission = InsertReply(InsertCommand([DOCUMENTS[1]], True, b"", b"", None, None, True, 0), expected.append)
    submission.expect()
    submission.staged()
    submission.settle((0,), error, told)
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
    insert.reply(bson.encode({"n": 1, "ok": 1.0}))
    assert rooms.reply() == {"n": 1, "ok": 1.0}
    assert rooms.settled_bytes == []


def test_a_client_that_is_gone_leaves_its_measurement() -> None:
    rooms, insert = started()
    assert not insert.is_abandoned()
    rooms.session.close()
    assert insert.is_abandoned()


def test_too_many_documents_are_refused() -> None:
    """W94."""
    rooms = Rooms()
    assert rooms.parsed(message(DOCUMENTS[0]))
    tiny = bson.encode({})
    rooms.start(message(*([tiny] * (MAX_DOCUMENTS + 1))))
    assert document_of(Message.from_bytes(rooms.client.written[0]))["code"] == 16
    assert rooms.meter.counted == [True]
