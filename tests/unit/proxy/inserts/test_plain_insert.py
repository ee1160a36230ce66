"""An insert whose body is known goes its short way, and is answered as on the long one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import bson
import pytest
from bson import ObjectId

from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import Namespace, VirtualCollection
from catalog.ports import Acknowledgement
from catalog.write_batch import Writer
from proxy.inserts.insert_command import InsertCommand
from proxy.inserts.insert_reply import InsertReply
from proxy.inserts.insert_templates import InsertTemplate, InsertTemplates
from proxy.inserts.plain_insert import PlainInsert, PlainInserts
from proxy.request.session import Session
from proxy.wire.message import Message
from tests.support.insert_messages import COLLECTION, DOCUMENTS, Meter, message, remembering
from tests.support.network import FakeClient
from tests.support.raw_wire import document_of
from tests.support.sessions import session

TELLING = Acknowledgement(fields={"electionId": ObjectId(), "opTime": {"t": 1}, "operationTime": 7})
UNCONFIRMED = Acknowledgement({"code": 64, "errmsg": "waiting for replication timed out"})


class Rooms:
    """What is behind a recognised insert."""

    def __init__(self, *, allowed: bool | None = True, collection: VirtualCollection | None = COLLECTION) -> None:
        self.allowed = allowed
        self.collection = collection
        self.inserts: InsertTemplates = remembering(message(DOCUMENTS[0]))
        self.writers: list[tuple[bytes, Any]] = []
        self.several: list[Sequence[bytes]] = []
        self.refusal: CommandError | None = None
        self.settled_bytes: list[int] = []
        self.meter = Meter()
        self.client = FakeClient()

    def repeated(self, raw: bytes) -> Any:
        return self.inserts.find(raw)

    def submit(self, *arguments: Any) -> bool:
        return False

    def submit_one(
        self, session: Session, repeated: InsertTemplate, document: bytes, txn_number: int | None, writer: Writer
    ) -> None:
        self.writers.append((document, writer))

    def submit_known(
        self,
        session: Session,
        repeated: InsertTemplate,
        documents: Sequence[bytes],
        txn_number: int | None,
        reply: Any,
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.several.append(documents)
        reply(bson.encode({"n": len(documents), "ok": 1.0}))

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

    def start(self, raw: bytes, compressor: int = 0) -> Any:
        request = Message.from_bytes(raw)
        request.compressor = compressor
        return PlainInserts(self, self, self, self.meter).start(session(), request, self.client)

    def reply(self) -> dict[str, Any]:
        (raw,) = self.client.written
        reply = Message.from_bytes(raw)
        assert (reply.response_to, self.client.finished, self.meter.counted) == (7, 1, [False])
        return document_of(reply)


@pytest.mark.parametrize(
    "rooms", [Rooms(allowed=None), Rooms(allowed=False), Rooms(collection=None)], ids=["unasked", "refused", "gone"]
)
def test_what_may_have_changed_takes_the_long_way(rooms: Rooms) -> None:
    assert rooms.start(message(DOCUMENTS[1])) is None
    assert not rooms.writers
    assert not rooms.client.written


def test_an_unknown_body_takes_the_long_way() -> None:
    assert Rooms().start(message(DOCUMENTS[1], body={"insert": "y", "$db": "d"})) is None


def started() -> tuple[Rooms, PlainInsert]:
    rooms = Rooms()
    insert = rooms.start(message(DOCUMENTS[1]))
    assert rooms.writers == [(DOCUMENTS[1], insert)]
    return rooms, insert


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
    insert.abandon()
    assert not rooms.client.written


@pytest.mark.parametrize(("documents", "compressor"), [(DOCUMENTS, 0), (DOCUMENTS[:1], 2)])
def test_several_documents_and_compressed_ones_go_together(documents: tuple[bytes, ...], compressor: int) -> None:
    rooms = Rooms()
    rooms.start(message(*documents), compressor)
    assert [tuple(each) for each in rooms.several] == [documents]
    assert rooms.client.finished == 1
    assert rooms.meter.counted == [False]


def test_too_many_documents_are_refused() -> None:
    rooms = Rooms()
    rooms.refusal = CommandError(16, "too many")
    rooms.start(message(*DOCUMENTS))
    assert document_of(Message.from_bytes(rooms.client.written[0]))["code"] == 16
