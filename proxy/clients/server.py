"""The server: wires the rooms together, listens, admits clients and stops.

Order of stopping: 1. the listener closes; 2. clients leave (``proxy.clients.leaving``), and those that are left are
closed at the end of the grace period; 3. tasks of the network side are cancelled. After that,
``proxy.process`` stops the committer, the service client and the embedded mongod, in this order.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from pymongo.topology_description import TopologyDescription

from catalog.errors import CommandError
from catalog.identity import NOBODY
from proxy.clients.accepting import Listener
from proxy.clients.administration import Administration, AdminParts, admin_admission
from proxy.clients.admission import Admission
from proxy.clients.command_limits import CommandLimits
from proxy.clients.connection import ClientConnection
from proxy.clients.connection_board import ConnectionBoard
from proxy.clients.dispatch import Dispatcher
from proxy.clients.handlers import Gatekeeper, Handlers
from proxy.clients.idle_clients import close_idle
from proxy.clients.leaving import STOPS, Farewell, Leaving, patience
from proxy.clients.measuring import Measuring, Numbers
from proxy.clients.new_collections import NewCollections
from proxy.clients.relay_only import NoNamespaces, OpenGate, no_cursors, no_effects, no_login, no_others, no_translate
from proxy.clients.roster import Roster
from proxy.clients.tls import Newest
from proxy.clients.turns import Turns
from proxy.hello.handler import HelloHandler
from proxy.inserts.insert_port import InsertPort
from proxy.members.joins_applied import JoinsApplied
from proxy.members.primary_monitor import PrimaryMonitor
from proxy.members.read_preference import MemberSelector
from proxy.observe.limit_numbers import LimitNumbers
from proxy.observe.metrics import ConnectionNumbers
from proxy.observe.tasks import TaskSet
from proxy.reads.inline_reads import InlineReads
from proxy.relay.failover import Failover
from proxy.relay.handler import RelayHandler
from proxy.request.command import Command
from proxy.request.limited import LimitBook
from proxy.request.open_transactions import OpenTransactions
from proxy.request.ports import Announce, BackendView, Effects, Gate, Namespaces, Readers, Translator
from proxy.request.recognition import Memory, memory
from proxy.request.session import Session
from proxy.request.slow_threshold import NEVER_SLOW, SlowThreshold
from proxy.request.unanswered import Unanswered, in_turns
from proxy.settings.table import Address, Settings
from proxy.upstream.connection import Upstream
from proxy.upstream.dialing import Dialer, parse_upstream_name
from proxy.wire.limits import MAX_MESSAGE_SIZE_BYTES
from proxy.wire.reader import LARGE_BYTES, MessageReader

log = structlog.get_logger()

BACKLOG: Final = 4096
SWEEP_SECONDS: Final = 1.0
"""Interval between checks for idle clients."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the network side needs from the other rooms; with the defaults, the proxy only relays."""

    backend: BackendView
    numbers: Numbers
    connections: ConnectionNumbers
    tls_to_backend: ssl.SSLContext | None = None
    namespaces: Namespaces = field(default_factory=NoNamespaces)
    ingest: InsertPort | None = None
    translate: Translator = no_translate
    inline_reads: InlineReads | None = None
    translated: Collection[str] = ()
    knows_cursor: Callable[[Command], bool] = no_cursors
    effects: Effects = no_effects
    announce: Announce = no_others
    readers: Readers | None = None
    gate: Gate = field(default_factory=OpenGate)
    on_step_down: Callable[[], None] = lambda: None
    topology: Callable[[], TopologyDescription] | None = None
    requires_login: Callable[[], bool] = no_login
    joins_applied: JoinsApplied | None = None
    new_collections: NewCollections | None = None
    memory: Memory = field(default_factory=memory)
    open_transactions: OpenTransactions = field(default_factory=OpenTransactions)
    slow: SlowThreshold = NEVER_SLOW
    admin: AdminParts = field(default_factory=AdminParts)
    limits: LimitBook = field(default_factory=lambda: LimitBook(LimitNumbers()))
    connection_ids: Iterator[int] | None = None


class Server:
    """The listener for MongoDB clients and their connections."""

    def __init__(self, settings: Settings, parts: Parts) -> None:
        self.settings = settings
        self._parts = parts
        self._tasks = TaskSet(lambda error: log.error("a task failed", exc_info=error))
        in_replica_set = "setName" in parts.backend.hello
        self._primary_monitor = PrimaryMonitor(
            lambda name: self._dialer_to(parse_upstream_name(name)), self._tasks.spawn, self.primary_stepped_down
        )
        self._dialer = Dialer(
            parts.backend.primary_address,
            parts.tls_to_backend,
            settings.connect_timeout_ms / 1000,
            patience_seconds=settings.server_selection_timeout_ms / 1000 if in_replica_set else 0.0,
            on_not_primary=self._suspect if in_replica_set else None,
        )
        self.hello = HelloHandler(parts.backend, self._tasks, settings.compressors)
        self._roster = Roster(parts.connection_ids)
        self.admin = Administration(
            lambda: self.settings, parts.admin, self._roster, self.hello, self._tasks, self._hold_commands
        )
        unanswered = Unanswered()
        handlers = Handlers(
            RelayHandler(self._tasks, parts.effects, parts.announce, unanswered),
            self.hello,
            parts.ingest,
            in_turns(parts.translate, unanswered),
            parts.gate,
            self._members(),
            parts.inline_reads,
            Failover(self._primary_monitor.suspect, self._next_primary) if in_replica_set else None,
            parts.memory,
            self.admin.handler,
        )
        self._dispatchers = _dispatcher(handlers, parts, self._tasks), _dispatcher(handlers, parts, self._tasks)
        """For all clients, and for the listener for admin commands."""
        self._dispatchers[1].hold = self.admin.only_admin
        self._use_limits()
        self.admission = Admission(settings, parts.connections, leaves_files=True)
        self._admin_admission = admin_admission(settings)
        self._listeners: list[Listener] = []

    def follow(self, settings: Settings) -> None:
        """Apply reloaded settings: most to new connections only."""
        self.settings = settings
        self.admission.follow(settings)
        self.hello.compressors = settings.compressors
        self._use_limits()

    def translate(self, commands: frozenset[str]) -> None:
        """Rewrite these commands from now on, and relay all others; commands are recognised anew."""
        self._parts.memory.clear()
        for dispatcher in self._dispatchers:
            dispatcher.translated = commands

    def _use_limits(self) -> None:
        limits, (dispatcher, _) = self._parts.limits, self._dispatchers
        dispatcher.limits = CommandLimits(limits, dispatcher.measuring) if limits.limits_anything else None

    def _members(self) -> MemberSelector | None:
        topology = self._parts.topology
        return None if topology is None else MemberSelector(topology, self._dialer_to, self._parts.joins_applied)

    def _dialer_to(self, member: tuple[str, int | None]) -> Dialer:
        async def address() -> tuple[str, int]:
            return member[0], member[1] or 27017

        return Dialer(address, self._parts.tls_to_backend, self.settings.connect_timeout_ms / 1000)

    def _hold_commands(self, hold: Gatekeeper | None) -> None:
        self._dispatchers[0].hold = hold

    # --- Host -----------------------------------------------------------------------------------------------

    now_seconds = staticmethod(time.monotonic)

    @property
    def traffic(self) -> ConnectionNumbers:
        return self._parts.connections

    def accept(self, connection: ClientConnection, peer: str) -> Session | None:
        admission = self._admin_admission if connection.is_for_admin else self.admission
        if self._roster.is_closed:
            return None
        connection_id = self._roster.enter(connection)
        if connection.on_admitted is not None:
            # Until now it counted as a handshake.
            connection.on_admitted()
        admission.entered(peer)

        def upstream_lost() -> None:
            # A login ends with its connection. Without one, the next command opens another connection.
            if session.upstream.is_bound and self._primary_monitor.primary:
                session.upstream.retire()
            elif session.upstream.is_bound:
                connection.drain()

        def limit_messages(size_bytes: int) -> None:
            connection.limit_messages(size_bytes)
            session.message_limit_bytes = size_bytes

        upstream = Upstream(self._dialer, upstream_lost)
        session = Session(connection_id, peer, upstream, open_transactions=self._parts.open_transactions)

        def identified() -> None:
            try:
                if not connection.is_for_admin:
                    self._parts.limits.identified(session)
            except CommandError:
                # The client gets the error, and nothing more.
                session.identity = NOBODY
                connection.drain()
                raise

        session.on_identity = identified
        session.came_at_seconds = connection.active_at_seconds
        session.is_for_admin = connection.is_for_admin
        if self._parts.requires_login():
            limit_messages(self.settings.pre_auth_max_message_bytes)
            session.on_login = lambda: limit_messages(MAX_MESSAGE_SIZE_BYTES)
        log.debug("client connected", peer=peer, connection=session.connection_id)
        return session

    def has_room(self, connection: ClientConnection, size_bytes: int) -> bool:
        """See ``proxy.clients.connection.Host``. All clients that have yet to log in count as one."""
        session = connection.session
        assert session is not None
        is_known = session.identity or not self._parts.requires_login()
        owner = session.owner if is_known else None
        return self.admission.room.take(connection, owner, size_bytes, self.now_seconds())

    def waits_for_room(self, connection: ClientConnection) -> bool:
        return self.admission.room.waits(connection)

    def received(self, connection: ClientConnection) -> None:
        self.admission.room.release(connection, self.now_seconds())

    def left(self, connection: ClientConnection) -> None:
        session = connection.session
        assert session is not None
        log.debug("client disconnected", peer=session.peer, connection=session.connection_id)
        self._roster.leave(connection)
        (self._admin_admission if connection.is_for_admin else self.admission).left(session.peer)
        self._parts.limits.left(session)
        self.admission.room.release(connection, self.now_seconds())

    def broken(self, session: Session, reason: str) -> None:
        log.info("protocol error from client", peer=session.peer, connection=session.connection_id, reason=reason)

    def _suspect(self, address: str) -> None:
        self._primary_monitor.suspect(address)

    def primary_stepped_down(self, address: str) -> None:
        """That server is no longer the primary: no further command goes there.

        A client that has logged in did so on its connection to that server, so it must log in again: at its next
        command (``proxy.relay.failover``), or because it is closed after a while (``proxy.clients.idle_clients``).
        """
        self._dialer.avoid(address)
        members = self._dispatchers[0].handlers.members
        if members is not None:
            # Cursors that clients opened there remain there.
            members.was_primary(parse_upstream_name(address))
        logins = 0
        for client in self._roster:
            upstream = client.session.upstream if client.session is not None else None
            if upstream is not None and upstream.address == address and not upstream.is_retired:
                upstream.retire()
                logins += upstream.is_bound
        if logins:
            # On this, drivers discard the connections in their pools, whose logins are no longer valid.
            self.hello.interrupt()
        self._parts.on_step_down()

    async def _next_primary(self) -> None:
        await self._primary_monitor.next_primary(self._dialer.patience_seconds)

    def not_primary_reported(self, address: str) -> None:
        """A member reports that it is not primary, or does not respond: if it was the primary, it is checked."""
        if address == self._primary_monitor.primary:
            self._suspect(address)

    def primary_is(self, address: str) -> None:
        """This member is the primary: no further command goes to any other server."""
        ready = (client.session.upstream.ready for client in self._roster if client.session is not None)
        for other in {connection.address for connection in ready if connection is not None} - {address}:
            self.primary_stepped_down(other)
        for client in self._roster:
            if client.session is not None and client.session.upstream.address == address:
                client.session.upstream.reinstate()
        self._primary_monitor.primary_is(address)

    # --- life -------------------------------------------------------------------------------------------------

    async def start(
        self,
        tls: Newest | None = None,
        sockets: Sequence[socket.socket] = (),
        board: ConnectionBoard | None = None,
    ) -> tuple[str, int]:
        """Listen; returns the address, with the actual port if the setting is port 0. Raises ``OSError``.

        ``sockets``: bound ones to listen on instead of the address of the settings; ``board``: of the processes that
        share them.
        """
        if board is not None:
            self.admission.on_change = board.publish
            board.publish(0)
        address = await self._listen(self.settings.listen, tls, sockets, board, is_for_admin=False)
        self._tasks.keep(self._sweep)
        return address

    async def start_admin(
        self, address: Address, tls: Newest | None = None, sockets: Sequence[socket.socket] = ()
    ) -> tuple[str, int]:
        """As ``start``, for admin commands only."""
        return await self._listen(address, tls, sockets, None, is_for_admin=True)

    async def _listen(
        self,
        address: Address,
        tls: Newest | None,
        sockets: Sequence[socket.socket],
        board: ConnectionBoard | None,
        *,
        is_for_admin: bool,
    ) -> tuple[str, int]:
        turns = Turns(asyncio.get_running_loop().call_soon)
        admission = self._admin_admission if is_for_admin else self.admission

        def protocol(on_admitted: Callable[[], None]) -> ClientConnection:
            reader = MessageReader(large_bytes=LARGE_BYTES)
            connection = ClientConnection(self, self._dispatchers[is_for_admin], reader, turns)
            connection.is_for_admin = is_for_admin
            connection.on_admitted = on_admitted
            return connection

        if sockets:
            for each in sockets:
                each.setblocking(False)
                each.listen(BACKLOG)
        else:
            sockets = await Listener.listen(address.host, address.port, BACKLOG)
        listener = Listener(sockets, tls, protocol, admission, self._tasks.spawn, board)
        self._listeners.append(listener)
        host, port = listener.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def _sweep(self) -> None:
        """Close idle and slow clients. One that waits for a streaming ``hello`` has a command in progress."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.close_idle()
            self.admission.room.close_slow(self.now_seconds())

    def close_idle(self) -> None:
        """Close clients that were idle for too long."""
        close_idle(self._roster, self.settings, self.now_seconds(), requires_login=self._parts.requires_login())

    def _refuse_all(self) -> None:
        for dispatcher in self._dispatchers:
            dispatcher.hold = Farewell(STOPS)

    async def stop(self, on_closed: Callable[[], None] = lambda: None, *, takes_queue: bool = True) -> None:
        """Stop, in the order that the module's docstring gives. ``on_closed`` is called after the first step.

        ``takes_queue``: whether connections that wait to be accepted are served; no other process has the sockets.
        """
        self.admission.on_change = None
        for listener in self._listeners:
            listener.close(takes_queue=takes_queue)
        on_closed()
        self.admin.stop()
        leaving = Leaving(self._roster, self.hello.interrupt, self.now_seconds)
        grace_seconds = self.settings.shutdown_grace_seconds
        try:
            async with asyncio.timeout(grace_seconds):
                await leaving.all_left(patience(grace_seconds), self._refuse_all, arriving=self.admission.arriving)
        except TimeoutError:
            log.warning("closing remaining client connections after the grace period", clients=len(self._roster))
        self._roster.is_closed = True
        self._roster.abort()
        await self._tasks.close()


def _dispatcher(handlers: Handlers, parts: Parts, tasks: TaskSet) -> Dispatcher:
    return Dispatcher(
        handlers,
        parts.namespaces,
        parts.translated,
        parts.knows_cursor,
        tasks,
        Measuring(parts.numbers, parts.slow),
        parts.readers,
        parts.new_collections,
    )
