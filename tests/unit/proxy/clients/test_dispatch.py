from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from proxy.clients.dispatch import Dispatcher, Handlers
from proxy.clients.server import OpenGate
from proxy.hello.handler import HelloHandler
from proxy.observe.tasks import TaskSet
from proxy.relay.handler import RelayHandler
from proxy.request.command import Command
from proxy.request.exchange import encode
from proxy.request.router import UNRESOLVED, Unresolved
from proxy.request.session import Session
from proxy.wire.errors import ProtocolError
from proxy.wire.message import Message
from tests.support.network import FakeClient
from tests.support.raw_wire import body, command, document_of, framed, op_msg_bytes, query
from tests.support.sessions import session

VIRTUAL = VirtualCollection(Namespace("d", "ts"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))


class Door(OpenGate):
    stranger = False

    def is_stranger(self, session: Session) -> bool:
        return self.stranger


class Rooms:
    """Everything behind the dispatcher, answering what the test says."""

    hello: ClassVar[dict[str, Any]] = {
        "maxBsonObjectSize": 1, "maxMessageSizeBytes": 2, "maxWriteBatchSize": 3, "maxWireVersion": 17
    }  # fmt: skip

    def __init__(self) -> None:
        self.counted: list[tuple[str, str, bool]] = []
        self.invariant_violations = 0
        self.known = False
        self.forgets = False
        self.resolved = 0
        self.door = Door()
        self.reply: bytes | Exception = encode({"ok": 1.0})
        self.tasks = TaskSet(lambda error: None)
        handlers = Handlers(
            RelayHandler(self.tasks, lambda effect: None),
            HelloHandler(self, self.tasks, ("zlib",)),
            self,
            self.translate,
            self.door,
        )
        self.dispatcher = Dispatcher(handlers, self, {"find"}, lambda command: False, self.tasks, self)
        self.session = session()

    async def primary_address(self) -> tuple[str, int]:
        raise BackendUnavailable("nowhere")

    def lookup(self, namespace: Namespace) -> VirtualCollection | Unresolved | None:
        return VIRTUAL if self.known else UNRESOLVED

    async def resolve(self, namespace: Namespace) -> VirtualCollection | None:
        if isinstance(self.reply, BackendUnavailable):
            raise self.reply
        self.resolved += 1
        self.known = not self.forgets
        return VIRTUAL

    def submit(
        self,
        session: Session,
        command: Command,
        collection: VirtualCollection,
        reply: Callable[[bytes | None], None],
    ) -> bool:
        if isinstance(self.reply, Exception):
            raise self.reply
        reply(self.reply)
        return True

    def repeated(self, raw: bytes) -> None:
        """Every insert is a new one here."""

    async def translate(self, session: Session, command: Command, collection: VirtualCollection | None) -> bytes:
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def requests(self, name: str, way: str) -> Any:
        rooms = self

        class Meter:
            def done(self, seconds: float, *, failed: bool = False) -> None:
                rooms.counted.append((name, way, failed))

        return Meter()

    async def ask(self, raw: bytes) -> dict[str, Any] | None:
        client = FakeClient()
        self.dispatcher.start(self.session, Message.from_bytes(raw), client)
        while not client.finished and not client.closed:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return document_of(Message.from_bytes(client.written[0])) if client.written else None


INSERT = command({"insert": "ts", "documents": [{}], "$db": "d"})
FIND = command({"find": "ts", "$db": "d"})


async def test_what_was_found_for_a_command_counts_for_it_whatever_is_forgotten_meanwhile() -> None:
    rooms = Rooms()
    rooms.forgets = True
    assert await rooms.ask(INSERT) == {"ok": 1.0}
    assert await rooms.ask(FIND) == {"ok": 1.0}
    assert rooms.resolved == 2


@pytest.mark.parametrize("document", [{"drop": "ts"}, {"insert": "ts", "documents": [{}]}, {"find": "ts"}], ids=str)
async def test_of_a_stranger_nothing_is_looked_up(document: dict[str, Any]) -> None:
    """It is relayed (here: to nowhere); hello is answered."""
    rooms = Rooms()
    rooms.door.stranger = True
    reply = await rooms.ask(command({**document, "$db": "d"}))
    assert reply is not None
    assert reply["errmsg"] == "nowhere"
    hello = await rooms.ask(command({"hello": 1, "$db": "admin"}))
    assert hello is not None
    assert hello["ok"] == 1.0
    assert rooms.resolved == 0
    assert [way for _, way, _ in rooms.counted] == ["relay", "answer"]


async def test_unknown_namespaces_are_asked_for_and_then_routed() -> None:
    rooms = Rooms()
    assert await rooms.ask(INSERT) == {"ok": 1.0}
    assert rooms.counted == [("insert", "ingest", False)]
    assert await rooms.ask(FIND) == {"ok": 1.0}
    assert rooms.counted[1:] == [("find", "translate", False)]


@pytest.mark.parametrize("raw", [INSERT, FIND])
async def test_errors_of_every_kind_become_replies(raw: bytes) -> None:
    rooms = Rooms()
    rooms.known = True
    rooms.reply = CommandError(2, "no good")
    reply = await rooms.ask(raw)
    assert reply == {"ok": 0.0, "errmsg": "no good", "code": 2, "codeName": "BadValue"}
    rooms.reply = ValueError("a bug with a secret")
    reply = await rooms.ask(raw)
    assert reply is not None
    assert (reply["code"], "secret" in reply["errmsg"], "reference" in reply["errmsg"]) == (1, False, True)
    assert [failed for _, _, failed in rooms.counted] == [True, True]
    assert rooms.invariant_violations == 1


async def test_backend_that_cannot_be_asked_is_an_error_reply() -> None:
    rooms = Rooms()
    rooms.reply = BackendUnavailable("nowhere")
    reply = await rooms.ask(FIND)
    assert reply is not None
    assert reply["code"] == 6


async def test_hello_needs_no_backend() -> None:
    reply = await Rooms().ask(command({"hello": 1, "compression": ["zlib", "x"], "$db": "admin"}))
    assert reply is not None
    assert (reply["isWritablePrimary"], reply["compression"]) == (True, ["zlib"])


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (op_msg_bytes(body({"ping": 1})), 40571),
        (query({"insert": "c"}, "d.$cmd"), 352),
        (query({"x": 1}, "d.c"), 5739101),
        (query({"isMaster": 1}, number_to_return=0), 16979),
        (framed(2005, b"\0\0\0\0a.b\0" + bytes(12)), 5739101),
    ],
)
async def test_faults_that_get_a_reply(raw: bytes, code: int) -> None:
    reply = await Rooms().ask(raw)
    assert reply is not None
    assert reply["code"] == code


@pytest.mark.parametrize(
    "raw",
    [
        framed(2002, b"\0\0\0\0a.b\0"),
        framed(2013, b""),
        op_msg_bytes(body({"ping": 1, "$db": "d"}), flags=4),
        op_msg_bytes(body({"ping": 1, "$db": "d"}), response_to=5),
        framed(2012, b"\0\0\0"),
    ],
)
async def test_faults_that_end_the_connection(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        await Rooms().ask(raw)
