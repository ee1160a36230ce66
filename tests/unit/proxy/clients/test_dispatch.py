from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from bson import Int64

from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from proxy.clients.dispatch import Dispatcher
from proxy.clients.handlers import AdminCommands, Handlers
from proxy.clients.measuring import Measuring
from proxy.clients.relay_only import no_others
from proxy.clients.server import OpenGate
from proxy.hello.handler import HelloHandler
from proxy.inserts.insert_templates import InsertTemplate
from proxy.members.read_preference import MemberSelector
from proxy.observe.tasks import TaskSet
from proxy.readers.register import ReaderRegister
from proxy.relay.failover import Failover
from proxy.relay.handler import RelayHandler
from proxy.request.command import Command
from proxy.request.exchange import Exchange, encode
from proxy.request.ports import Readers
from proxy.request.router import UNRESOLVED, Unresolved
from proxy.request.session import Session
from proxy.request.times import Times
from proxy.request.unanswered import Unanswered
from proxy.upstream.connection import UpstreamLost
from proxy.upstream.dialing import Dialer
from proxy.wire.errors import ProtocolError
from proxy.wire.message import Message
from tests.support.failover_world import World
from tests.support.network import FakeClient
from tests.support.raw_wire import body, command, document_of, framed, op_msg_bytes, query, sequence, with_checksum
from tests.support.sessions import nowhere, session

VIRTUAL = VirtualCollection(Namespace("d", "ts"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))


class Door(OpenGate):
    stranger = False

    def must_log_in(self, session: Session) -> bool:
        return self.stranger


class Rooms:
    """Everything behind the dispatcher, answering what the test says."""

    hello: ClassVar[dict[str, Any]] = {
        "maxBsonObjectSize": 1, "maxMessageSizeBytes": 2, "maxWriteBatchSize": 3, "maxWireVersion": 17
    }  # fmt: skip

    def __init__(
        self,
        failover: Failover | None = None,
        members: MemberSelector | None = None,
        readers: Readers | None = None,
        admin: AdminCommands | None = None,
    ) -> None:
        self.counted: list[tuple[str, str, bool]] = []
        self.asked: list[Session] = []
        self.earlier: list[bytes | Exception] = []
        """What the first attempts come to."""
        self.invariant_violations = 0
        self.known = False
        self.forgets = False
        self.resolved = 0
        self.parsed: list[bool] = []
        """Of each insert."""
        self.door = Door()
        self.reply: bytes | Exception = encode({"ok": 1.0})
        self.tasks = TaskSet(lambda error: None)
        handlers = Handlers(
            RelayHandler(self.tasks, lambda effect: None, no_others, Unanswered()),
            HelloHandler(self, self.tasks, ("zlib",)),
            self,
            self.translate,
            self.door,
            members,
            None,
            failover,
            admin=admin,
        )
        self.dispatcher = Dispatcher(
            handlers, self, {"find", "getMore"}, lambda command: True, self.tasks, Measuring(self), readers
        )
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

    retryable_writes = False

    def documents_to_relay(self, *_: object) -> int:
        return 0

    def submit(
        self,
        exchange: Exchange,
        template: InsertTemplate,
        documents: Sequence[bytes],
        session: bytes,
        txn_number: int | None,
    ) -> None:
        if isinstance(self.reply, Exception):
            raise self.reply
        self.parsed.append(exchange.command is not None)
        exchange.reply(self.reply)

    async def translate(
        self, session: Session, command: Command, collection: VirtualCollection | None, times: Times
    ) -> bytes:
        self.asked.append(session)
        reply = self.earlier.pop(0) if self.earlier else self.reply
        if isinstance(reply, Exception):
            raise reply
        return reply

    def requests(self, name: str, way: str) -> Any:
        rooms = self

        class Meter:
            def done(self, seconds: float, code: int = 0) -> None:
                rooms.counted.append((name, way, bool(code)))

        return Meter()

    async def ask(self, raw: bytes) -> dict[str, Any] | None:
        client = FakeClient()
        self.dispatcher.start(self.session, Message.from_bytes(raw), client)
        self.client = client
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


async def test_command_that_was_seen_before_is_not_parsed() -> None:
    rooms = Rooms()
    rooms.known = True
    raw = op_msg_bytes(body({"insert": "ts", "$db": "d"}), sequence("documents", {"a": 1}))
    for each in (raw, raw, with_checksum(raw), raw):
        assert await rooms.ask(each) == {"ok": 1.0}
    assert rooms.parsed == [True, False, True, False]
    assert rooms.counted == [("insert", "ingest", False)] * 4
    rooms.known = False
    assert await rooms.ask(raw) == {"ok": 1.0}
    assert (rooms.parsed[4:], rooms.resolved) == ([True], 1)


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


DEPOSED = encode({"ok": 0.0, "code": 10107, "errmsg": "not primary"})
MISSING = encode({"ok": 0.0, "code": 43, "errmsg": "cursor not found"})
MORE = command({"getMore": Int64(9), "collection": "ts", "$db": "d"})


def in_replica_set(world: World, members: MemberSelector | None = None) -> Rooms:
    rooms = Rooms(world.failover, members, world.register)
    rooms.known = True
    rooms.session = world.session
    return rooms


class Set(World):
    """A replica set with readers that are counted."""

    def __init__(self, *, has_left: bool = True) -> None:
        super().__init__(has_left=has_left)
        self.register = ReaderRegister(lambda _: False)

    @staticmethod
    def topology() -> Any:
        class Server:
            address = ("former", 1)
            is_readable = True

        class Topology:
            def server_descriptions(self) -> dict[tuple[str, int], Server]:
                return {("former", 1): Server()}

        return Topology()

    @staticmethod
    def dialer_to(_: object) -> Any:
        return Dialer(nowhere, None, 1.0)


@pytest.mark.parametrize("first", [DEPOSED, UpstreamLost("cut")], ids=["deposed", "lost"])
async def test_command_begins_again_at_the_next_primary_and_is_one_reader_still(first: bytes | Exception) -> None:
    world = Set()
    world.connected(bound=False)
    rooms = in_replica_set(world)
    rooms.earlier = [first]
    assert await rooms.ask(FIND) == {"ok": 1.0}
    assert rooms.asked == [world.session] * 2
    assert rooms.counted == [("find", "translate", False)]
    async with world.register.kept_out(Namespace("d", "ts")) as alone:
        assert alone


@pytest.mark.parametrize("first", [DEPOSED, UpstreamLost("cut")], ids=["deposed", "lost"])
async def test_outcome_is_the_clients_where_the_primary_stays(first: bytes | Exception) -> None:
    world = Set(has_left=False)
    world.connected(bound=False)
    rooms = in_replica_set(world)
    rooms.earlier = [first]
    reply = await rooms.ask(FIND)
    assert (reply is None, rooms.client.closed) == (first is not DEPOSED, first is not DEPOSED)
    assert len(rooms.asked) == 1


async def test_client_that_has_logged_in_is_told_to_come_again() -> None:
    world = Set()
    world.connected(bound=True)
    rooms = in_replica_set(world)
    rooms.earlier = [DEPOSED]
    reply = await rooms.ask(FIND)
    assert reply is not None
    assert (reply["code"], rooms.client.closed, len(rooms.asked)) == (91, True, 1)


async def test_read_from_a_member_that_went_away_goes_back_to_the_clients_own_session() -> None:
    world = Set()
    members = MemberSelector(world.topology, world.dialer_to)
    rooms = in_replica_set(world, members)
    rooms.session = replace(world.session, member=("b", 2), home=world.session)
    rooms.earlier = [BackendUnavailable("refused")]
    assert await rooms.ask(FIND) == {"ok": 1.0}
    assert rooms.asked == [rooms.session, world.session]
    assert members.is_avoided(("b", 2))


@pytest.mark.parametrize("found", [True, False])
async def test_cursor_that_the_primary_does_not_have_is_sought_where_the_primary_was(found: bool) -> None:
    world = Set()
    members = MemberSelector(world.topology, world.dialer_to)
    members.was_primary(("former", 1))
    rooms = in_replica_set(world, members)
    rooms.earlier = [MISSING] if found else [MISSING, MISSING]
    reply = await rooms.ask(MORE)
    assert reply is not None
    assert reply.get("code") == (None if found else 43)
    assert [session.member for session in rooms.asked] == [None, ("former", 1)]


class Holding:
    """Holds what the test says."""

    def __init__(self) -> None:
        self.held: list[Exchange] = []
        self.is_holding = True

    def holds(self, exchange: Exchange) -> bool:
        if self.is_holding:
            self.held.append(exchange)
        return self.is_holding


async def test_held_commands_start_when_they_are_let_go() -> None:
    """Also one that would be recognised."""
    rooms = Rooms()
    rooms.known = True
    assert await rooms.ask(INSERT) == {"ok": 1.0}
    assert await rooms.ask(INSERT) == {"ok": 1.0}
    rooms.dispatcher.hold = holding = Holding()
    client = FakeClient()
    pending = rooms.dispatcher.start(rooms.session, Message.from_bytes(INSERT), client)
    assert (holding.held, client.written) == ([pending], [])
    rooms.dispatcher.hold = None
    holding.held[0].go_on()
    assert client.finished == 1
    assert document_of(Message.from_bytes(client.written[0])) == {"ok": 1.0}
    rooms.dispatcher.hold = holding
    holding.is_holding = False
    assert await rooms.ask(INSERT) == {"ok": 1.0}


async def test_a_held_message_that_breaks_the_protocol_ends_its_connection() -> None:
    rooms, client = Rooms(), FakeClient()
    rooms.dispatcher.hold = holding = Holding()
    rooms.dispatcher.start(rooms.session, Message.from_bytes(framed(2004, b"")), client)
    holding.held[0].go_on()
    assert client.closed


async def test_admin_commands_go_to_their_handler() -> None:
    class AdminCommands:
        def start(self, exchange: Exchange) -> None:
            exchange.reply(encode({"admin": 1}))

    rooms = Rooms(admin=AdminCommands())
    assert await rooms.ask(command({"tsproxy": "status", "$db": "admin"})) == {"admin": 1}
    rooms.door.stranger = True
    assert await rooms.ask(command({"tsproxy": "status", "$db": "admin"})) == {"admin": 1}
    assert rooms.counted == [("tsproxy", "admin", False)] * 2
    without = await Rooms().ask(command({"tsproxy": "status", "$db": "admin"}))
    assert without is not None
    assert without["errmsg"] == "nowhere"
