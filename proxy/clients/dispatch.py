"""From a message to a reply: the only place for timing, numbers and the last catch.

A message either ends its connection (``ProtocolError``) or becomes an ``Exchange`` that is finished exactly once,
by a reply, by nothing when none is wanted, or by closing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, assert_never
from uuid import uuid4

import structlog

from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import Namespace, VirtualCollection
from proxy.clients.failover_retry import FailoverRetry
from proxy.clients.legacy import legacy_command, refuse_legacy
from proxy.clients.new_collections import NewCollections
from proxy.clients.unwrapping import ASIDE_BYTES, Unwrapping
from proxy.hello.handler import HelloHandler
from proxy.inserts.insert_port import Ingest
from proxy.inserts.plain_insert import PlainInserts
from proxy.members.read_preference import Members
from proxy.observe.tasks import TaskSet
from proxy.reads.inline_reads import InlineReads, SentStep
from proxy.reads.plain_read import PlainReads
from proxy.relay.handler import RelayHandler
from proxy.relay.plain_relay import PlainRelays
from proxy.request import router
from proxy.request.authorisation import insert_actions
from proxy.request.command import Command, parse_command
from proxy.request.command_table import TABLE
from proxy.request.exchange import Client, Exchange, Meter, Pending, labelled
from proxy.request.ports import Gate, Namespaces, Readers, Translate
from proxy.request.session import Session
from proxy.request.session_fields import Undecodable
from proxy.upstream.connection import reply_document
from proxy.upstream.not_primary import NOT_PRIMARY_CODES
from proxy.wire import op_compressed, op_msg
from proxy.wire.errors import ProtocolError
from proxy.wire.message import Message, Opcode
from proxy.wire.op_msg import BODY_AT

_COMPRESSED: Final = int(Opcode.COMPRESSED)
_MSG: Final = int(Opcode.MSG)
Resolved: TypeAlias = tuple[Namespace, VirtualCollection | None]
"""A name, and what the backend said just now that it is."""

_INSERT: Final = b"\x02insert\0"

log = structlog.get_logger()

OTHER_COMMANDS: Final = "other"
"""How all commands that the router's table does not name are counted."""


class Numbers(Protocol):
    """Where requests, and internal errors, are counted (``proxy.observe.metrics``)."""

    invariant_violations: int

    def requests(self, command: str, way: str) -> Meter:
        """The meter for a command and a way."""
        ...


@dataclass(frozen=True, slots=True)
class Handlers:
    """One for each kind of route; ``gate`` stands before ``ingest``."""

    relay: RelayHandler
    answer: HelloHandler
    ingest: Ingest
    translate: Translate
    gate: Gate
    members: Members | None = None
    at_once: InlineReads | None = None


class Dispatcher:
    """Routes each message and sees to its end."""

    def __init__(
        self,
        handlers: Handlers,
        namespaces: Namespaces,
        translated: Collection[str],
        knows_cursor: Callable[[Command], bool],
        tasks: TaskSet,
        numbers: Numbers,
        readers: Readers | None = None,
        new_collections: NewCollections | None = None,
    ) -> None:
        """``translated`` are the commands that have a rewriter; ``knows_cursor``: see ``router.route``.

        ``readers`` hears of everything that may read buckets; ``None`` where nobody wants to know.
        """
        self._handlers = handlers
        self._namespaces = namespaces
        self._translated = frozenset(translated)
        self._knows_cursor = knows_cursor
        self._tasks = tasks
        self._numbers = numbers
        self._meters: dict[tuple[str, str], Meter] = {}
        self._readers = readers
        self._new_collections = new_collections
        self._plain = PlainRelays(
            namespaces.lookup, handlers.relay, readers, prefers_members=handlers.members is not None
        )
        self._reads = PlainReads(namespaces.lookup, handlers.at_once, readers, has_members=handlers.members is not None)
        self._inserts = PlainInserts(handlers.ingest, namespaces, handlers.gate, numbers.requests("insert", "ingest"))
        self._failover_retry = FailoverRetry(
            handlers.relay.failover,
            handlers.members,
            lambda exchange, command: self._guarded(exchange, lambda exchange: self._start_command(exchange, command)),
        )

    def start(self, session: Session, message: Message, client: Client) -> Pending:
        """Begin to answer ``message``; raises ``ProtocolError`` when the connection must end."""
        if message.response_to != 0:
            raise ProtocolError("a request that answers something")
        if message.pieces is not None or op_compressed.claimed_bytes(message) > ASIDE_BYTES:
            unwrapping = Unwrapping(client, lambda whole: self.start(session, whole, client))
            self._tasks.spawn(unwrapping.run(message, session.message_limit_bytes))
            return unwrapping
        if message.opcode == _COMPRESSED:
            message = op_compressed.unwrap(message, session.message_limit_bytes)
        expects_reply = True
        if message.opcode == _MSG:
            if message.parts is None and message.raw.startswith(_INSERT, BODY_AT + 4):
                insert = self._inserts.start(session, message, client)
                if insert is not None:
                    return insert
            if not message.compressor and not self._handlers.gate.is_stranger(session):
                if (plain := self._plain.start(session, message, client)) is not None:
                    return plain
                if (read := self._reads.start(session, message, client, self)) is not None:
                    return read
            expects_reply = not op_msg.peek_flags(message) & op_msg.MORE_TO_COME
        exchange = Exchange(session, client, message, expects_reply=expects_reply)
        self._guarded(exchange, self._begin)
        return exchange

    def left_by_primary(self, address: tuple[str, int | None]) -> None:
        """That server is not the primary any more; cursors that clients opened there are there still."""
        if self._handlers.members is not None:
            self._handlers.members.was_primary(address)

    def _guarded(self, exchange: Exchange, work: Callable[[Exchange], None]) -> None:
        try:
            work(exchange)
        except ProtocolError:
            raise
        except CommandError as error:
            exchange.refuse(error)
        except Exception as error:  # noqa: BLE001  (the last catch)
            self._unexpected(exchange, error)

    def _begin(self, exchange: Exchange) -> None:
        message = exchange.message
        if message.opcode == _MSG:
            exchange.command = parse_command(message)
        elif message.opcode == Opcode.QUERY:
            exchange.command = legacy_command(exchange)
            if exchange.command is None:
                return
        elif message.opcode == Opcode.GET_MORE:
            refuse_legacy(exchange, "OP_GET_MORE")
            return
        else:
            raise ProtocolError(f"opcode {message.opcode} is not in use")
        self._start_command(exchange, exchange.command)

    def _start_command(self, exchange: Exchange, command: Command) -> None:
        if self._handlers.gate.is_stranger(exchange.session):
            self._start_of_stranger(exchange, command)
            return
        if self._handlers.members is not None:
            exchange.session = self._handlers.members.session_for(exchange.session, command)
        self._route(exchange, command)

    def _start_of_stranger(self, exchange: Exchange, command: Command) -> None:
        """Nothing is looked up for it, remembered of it, or waits for it."""
        route = router.route_of_stranger(command)
        if isinstance(route, router.Relay):
            self._measure(exchange, command, "relay")
            self._handlers.relay.start(exchange, route)
        else:
            self._measure(exchange, command, "answer")
            self._handlers.answer.start(exchange)

    def _route(self, exchange: Exchange, command: Command, resolved: Resolved | None = None) -> None:
        session = exchange.session
        lookup = self._namespaces.lookup if resolved is None else partial(self._lookup_or, resolved)
        route = router.route(command, lookup, self._translated, self._knows_cursor)
        if self._readers is not None and self._must_wait(exchange, command, route, self._readers, resolved):
            return
        if command.name == "insert" and isinstance(route, router.Relay) and self._new_collections is not None:
            go_on = partial(self._guarded, exchange, partial(self._route, command=command))
            if self._new_collections.looks_first(command, go_on):
                return
        match route:
            case router.Relay():
                self._plain.remember(command, route, self._measure(exchange, command, "relay"))
                if session.member is None and not self._failover_retry.may_be_retried(command):
                    self._handlers.relay.start(exchange, route)
                else:
                    self._tasks.spawn(self._read_from_member(exchange, command))
            case router.Ingest(collection=collection):
                self._measure(exchange, command, "ingest")
                actions = insert_actions(command)
                allowed = self._handlers.gate.known(session, actions, collection.namespace)
                if allowed is None:
                    self._tasks.spawn(self._ask_and_ingest(exchange, command, collection, actions))
                else:
                    self._ingest(exchange, command, collection, allowed)
            case router.Translate(collection=collection):
                self._measure(exchange, command, "translate")
                if not self._sent_at_once(exchange, command, collection):
                    self._tasks.spawn(self._translate(exchange, command, collection))
            case router.Answer():
                self._measure(exchange, command, "answer")
                self._handlers.answer.start(exchange)
            case router.Resolve(namespace=namespace):
                self._tasks.spawn(self._resolve(exchange, command, namespace))
            case _:
                assert_never(route)

    def _lookup_or(self, resolved: Resolved, namespace: Namespace) -> VirtualCollection | router.Unresolved | None:
        """What was found for this very command counts, whatever was forgotten since: or it would ask for ever."""
        return resolved[1] if resolved[0] == namespace else self._namespaces.lookup(namespace)

    def _must_wait(
        self, exchange: Exchange, command: Command, route: router.Route, readers: Readers, resolved: Resolved | None
    ) -> bool:
        """Counts what may read buckets; true when it goes on later, because joins are under way."""
        is_relayed = isinstance(route, router.Relay)
        if not (isinstance(route, router.Translate) or (is_relayed and readers.counts(command))):
            return False
        database = command.namespace.database
        if readers.keeps_out(database):
            self._tasks.spawn(self._wait(exchange, command, readers, resolved))
            return True
        readers.enter(database)
        shows_cursor = is_relayed and readers.leaves_cursor(command)
        if shows_cursor:
            exchange.tail = b""

        def leave() -> None:
            if shows_cursor:
                readers.answered(command, exchange.tail or b"")
            readers.leave(database)

        exchange.on_leave = leave
        return False

    async def _wait(self, exchange: Exchange, command: Command, readers: Readers, resolved: Resolved | None) -> None:
        await readers.admitted(command.namespace.database)
        self._guarded(exchange, lambda exchange: self._route(exchange, command, resolved))

    def _ingest(self, exchange: Exchange, command: Command, collection: VirtualCollection, allowed: bool) -> None:
        """Who may not is relayed, for the backend to refuse in its own words."""
        if not allowed or not self._handlers.ingest.submit(exchange.session, command, collection, exchange.reply):
            self._handlers.relay.start(exchange, router.RELAY)

    async def _ask_and_ingest(
        self, exchange: Exchange, command: Command, collection: VirtualCollection, actions: tuple[str, ...]
    ) -> None:
        try:
            allowed = await self._handlers.gate.allows(exchange.session, actions, collection.namespace)
        except Exception as error:  # noqa: BLE001  (the last catch)
            await self._ended(exchange, command, error, partial(self._failed, exchange, error))
        else:
            self._guarded(exchange, lambda exchange: self._ingest(exchange, command, collection, allowed))

    async def _resolve(self, exchange: Exchange, command: Command, namespace: Namespace) -> None:
        try:
            found = await self._namespaces.resolve(namespace)
        except BackendUnavailable as error:
            exchange.refuse(labelled(error, command))
        except CommandError as error:
            exchange.refuse(error)
        except Exception as error:  # noqa: BLE001  (the last catch)
            self._unexpected(exchange, error)
        else:
            self._guarded(exchange, lambda exchange: self._route(exchange, command, (namespace, found)))

    def _sent_at_once(self, exchange: Exchange, command: Command, collection: VirtualCollection | None) -> bool:
        at_once = self._handlers.at_once
        if at_once is None or self._failover_retry.may_be_retried(command):
            return False

        return at_once.start(exchange, command, collection, self)

    # --- proxy.reads.inline_reads.Ways ------------------------------------------------------------------------------

    def sent_again(self, exchange: Exchange, step: SentStep) -> None:
        """See ``Ways``."""
        self._reads.remember(exchange, step)

    def goes_the_long_way(self, exchange: Exchange, collection: VirtualCollection | None) -> None:
        """See ``Ways``."""
        self._tasks.spawn(self._translate(exchange, self._command_of(exchange), collection))

    def heard_from_member(self, exchange: Exchange, document: bytes) -> None:
        """See ``Ways``."""
        self._heard_from_member(exchange.session, document)

    def failed(self, exchange: Exchange, error: Exception) -> None:
        """See ``Ways``."""
        command = self._command_of(exchange)
        self._tasks.spawn(self._ended(exchange, command, error, partial(self._failed, exchange, error)))

    def deposed(self, exchange: Exchange, reply: bytes) -> bool:
        """See ``Ways``."""
        command = self._command_of(exchange)
        if not self._failover_retry.takes(exchange, command, reply):
            return False
        self._tasks.spawn(self._ended(exchange, command, reply, partial(exchange.reply, reply)))
        return True

    def _command_of(self, exchange: Exchange) -> Command:
        """Of one that was recognised, only now."""
        if exchange.command is None:
            exchange.command = parse_command(exchange.message)
        return exchange.command

    async def _translate(self, exchange: Exchange, command: Command, collection: Any) -> None:
        try:
            document = await self._handlers.translate(exchange.session, command, collection)
        except Undecodable:
            self._handlers.relay.start(exchange, router.as_it_is(command, collection))
        except Exception as error:  # noqa: BLE001  (the last catch)
            await self._ended(exchange, command, error, partial(self._failed, exchange, error))
        else:
            self._heard_from_member(exchange.session, document)
            await self._ended(exchange, command, document, partial(exchange.reply, document))

    async def _ended(
        self, exchange: Exchange, command: Command, outcome: bytes | Exception, answer: Callable[[], None]
    ) -> None:
        """Answer, unless the server went away and the command may go to another."""
        try:
            if self._failover_retry.takes(exchange, command, outcome):
                await self._failover_retry.go(exchange, command, answer)
            else:
                answer()
        except Exception as error:  # noqa: BLE001  (the last catch)
            self._unexpected(exchange, error)

    async def _read_from_member(self, exchange: Exchange, command: Command) -> None:
        """The whole reply is looked at, since it may leave a cursor there."""
        try:
            reply = await exchange.session.upstream.exchange(exchange.message.raw)
            document = reply_document(reply)
            self._heard_from_member(exchange.session, document)
        except Exception as error:  # noqa: BLE001  (the last catch)
            await self._ended(exchange, command, error, partial(self._failed, exchange, error))
        else:
            await self._ended(exchange, command, document, partial(exchange.relayed, reply.raw))

    def _heard_from_member(self, session: Session, document: bytes) -> None:
        if session.member is not None and self._handlers.members is not None:
            self._handlers.members.heard(session, document)

    def _measure(self, exchange: Exchange, command: Command, way: str) -> Meter:
        meter = self._meters.get((command.name, way))
        if meter is None:
            # A client may invent names, and as long ones as it likes.
            name = command.name if command.name in TABLE else OTHER_COMMANDS
            meter = self._meters[name, way] = self._numbers.requests(name, way)
        exchange.meter = meter
        exchange.started_seconds = time.perf_counter()
        return meter

    def _failed(self, exchange: Exchange, error: Exception) -> None:
        """A command that had to wait for the backend ended with an error."""
        match error:
            case BackendUnavailable():
                exchange.failed(error, partly_sent=False)
            case CommandError() if error.code in NOT_PRIMARY_CODES:
                exchange.refuse(labelled(error, exchange.command))
            case CommandError():
                exchange.refuse(error)
            case _:
                self._unexpected(exchange, error)

    def _unexpected(self, exchange: Exchange, error: Exception) -> None:
        """A bug of ours: the client gets a reference, the log the rest, and the connection goes on."""
        self._numbers.invariant_violations += 1
        reference = uuid4().hex[:12]
        name = exchange.command.name if exchange.command is not None else ""
        known = name if name in TABLE else OTHER_COMMANDS
        log.error("unexpected error", reference=reference, command=known, exc_info=error)
        exchange.refuse(CommandError(1, f"internal error of the proxy, reference {reference}"))
