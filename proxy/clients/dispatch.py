"""From a message to a reply: chooses routes, retries attempts and handles unexpected errors of commands.

A message either ends its connection (``ProtocolError``) or becomes an ``Exchange``, which measures the time and is
finished exactly once. The rooms execute the command and pass an ``Outcome`` to the exchange; ``ended`` then does what
``proxy.request.attempt.what_follows`` says. Unexpected exceptions are caught, logged and counted here; only those of
staging and commits, which concern single writers, are reported there (``proxy.inserts.ingest``, ``catalog.commit``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Final, assert_never

from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import Namespace, VirtualCollection
from proxy.clients.command_limits import CommandLimits, StartLate
from proxy.clients.handlers import Gatekeeper, Handlers
from proxy.clients.legacy import legacy_command, refuse_legacy
from proxy.clients.measuring import Measuring
from proxy.clients.new_collections import NewCollections
from proxy.clients.unwrapping import LARGE_MESSAGE_BYTES, Unwrapping
from proxy.inserts.plain_insert import Inserts
from proxy.members.read_preference import MemberSelector
from proxy.observe.tasks import TaskSet
from proxy.relay.plain_relay import plain_relay
from proxy.request import attempt, router
from proxy.request.attempt import Next, Outcome, Situation, may_be_sent_again, of_error, of_reply, what_follows
from proxy.request.command import Command
from proxy.request.exchange import Client, Exchange, Meter, Pending, Reader, labelled
from proxy.request.needs import Needs, Requirements
from proxy.request.ports import Namespaces, Readers
from proxy.request.recognition import Recogniser
from proxy.request.session import Session
from proxy.request.session_fields import Undecodable
from proxy.request.times import NOT_SENT, WaitKind
from proxy.wire import op_compressed, op_msg
from proxy.wire.errors import ProtocolError
from proxy.wire.message import Message, Opcode

_COMPRESSED: Final = int(Opcode.COMPRESSED)
_MSG: Final = int(Opcode.MSG)


class Dispatcher:
    """Routes each message and acts on the outcome."""

    def __init__(
        self,
        handlers: Handlers,
        namespaces: Namespaces,
        translated: Collection[str],
        knows_cursor: Callable[[Command], bool],
        tasks: TaskSet,
        measuring: Measuring,
        readers: Readers | None = None,
        new_collections: NewCollections | None = None,
    ) -> None:
        """``translated`` are the commands that have a rewriter; ``knows_cursor``: see ``router.route``.

        ``readers`` registers every command that may read buckets; ``None`` if there are no joins.
        """
        self.handlers = handlers
        self._namespaces = namespaces
        self.translated = frozenset(translated)
        self._knows_cursor = knows_cursor
        self._tasks = tasks
        self.measuring = measuring
        self._new_collections = new_collections
        self.limits: CommandLimits | None = None
        has_members = handlers.members is not None
        self._requirements = Requirements(namespaces.lookup, handlers.gate, readers, has_members=has_members)
        self._recogniser = Recogniser(handlers.memory, self._requirements)
        self._inserts = None if handlers.ingest is None else Inserts(handlers.ingest)
        self.hold: Gatekeeper | None = None
        """Keeps commands from starting while clients are paused; ``None`` costs nothing."""

    def start(self, session: Session, message: Message, client: Client) -> Pending:
        """Start the command in ``message``; raises ``ProtocolError`` if the connection must be closed."""
        if message.response_to != 0:
            raise ProtocolError("responseTo of a request is not 0")
        is_compressed = message.opcode == _COMPRESSED
        if message.pieces is not None or (is_compressed and op_compressed.claimed_bytes(message) > LARGE_MESSAGE_BYTES):
            unwrapping = Unwrapping(client, lambda whole: self.start(session, whole, client))
            self._tasks.spawn(unwrapping.run(message, session.message_limit_bytes))
            return unwrapping
        if is_compressed:
            message = op_compressed.unwrap(message, session.message_limit_bytes)
        exchange = Exchange(session, client, message, self, self.measuring.slow)
        if self.hold is not None and self.hold.holds(exchange):
            return exchange
        if self.limits is not None and not self.limits.admits(exchange, self._begin_late):
            return exchange
        if message.opcode == _MSG:
            if self._recogniser.start(exchange):
                return exchange
            op_msg.peek_flags(message)
        self._guarded(exchange, self._begin)
        return exchange

    def go_on(self, exchange: Exchange) -> None:
        try:
            if self.limits is None or self.limits.admits(exchange, self._begin_late):
                self._begin_late(exchange)
        except ProtocolError:
            exchange.close()

    def _begin_late(self, exchange: Exchange) -> None:
        """Start a command that was kept waiting; raises ``ProtocolError``."""
        self._guarded(exchange, self._begin)

    def _guarded(self, exchange: Exchange, work: Callable[[Exchange], None]) -> None:
        """Run ``work``; if it raises, end the attempt. ``work`` raises only before it has sent anything."""
        try:
            work(exchange)
        except ProtocolError:
            raise
        except BackendUnavailable as error:
            self.ended(exchange, attempt.Unreachable(error))
        except Exception as error:  # noqa: BLE001  (the last catch)
            self.ended(exchange, of_error(error))

    def _begin(self, exchange: Exchange) -> None:
        exchange.sent_seconds = NOT_SENT
        message = exchange.message
        if message.opcode == Opcode.QUERY:
            exchange.command = legacy_command(exchange)
            if exchange.command is None:
                return
        elif message.opcode == Opcode.GET_MORE:
            refuse_legacy(exchange, "OP_GET_MORE")
            return
        elif message.opcode != _MSG:
            raise ProtocolError(f"opcode {message.opcode} is not supported")
        self._start_command(exchange)

    def _start_command(self, exchange: Exchange) -> None:
        command = exchange.parsed()
        if self._requirements.must_log_in(exchange.session):
            self._start_before_login(exchange, command)
        elif not exchange.expects_reply and attempt.only_reads(command):
            # Nobody would notice whether it was executed; a flood of such commands would keep the backend busy.
            self.measuring.begin(exchange, command, "relay")
            exchange.done()
        else:
            if (members := self.handlers.members) is not None:
                exchange.session = members.session_for(exchange.session, command)
            self.handlers.notice(exchange, command)
            self._route(exchange, command)

    def _start_before_login(self, exchange: Exchange, command: Command) -> None:
        """Start a command of a client that has yet to log in: without look-ups, caches or waiting."""
        route = router.route_before_login(command)
        if isinstance(route, router.Relay):
            self.measuring.begin(exchange, command, "relay")
            if exchange.expects_reply or route.changes_identity:
                self.handlers.relay.start(exchange, route)
            else:
                # What a server does before a login, it does for the reply alone. So a flood of strangers ends here.
                exchange.done()
        elif isinstance(route, router.Administer):
            self._administer(exchange, command)
        else:
            self.measuring.begin(exchange, command, "answer")
            self.handlers.answer.start(exchange)

    def _route(self, exchange: Exchange, command: Command, resolved: router.Resolved | None = None) -> None:
        lookup = self._namespaces.lookup if resolved is None else router.resolved_or(resolved, self._namespaces.lookup)
        route = router.route(command, lookup, self.translated, self._knows_cursor)
        needs = self._requirements.of(command, route)
        if needs.reader is not None:
            if needs.reader.is_kept_out:
                self._tasks.spawn(self._wait(exchange, command, needs.reader, resolved))
                return
            exchange.enter(needs.reader)
            members = self.handlers.members
            if members is not None and members.may_meet_joins(exchange.session, command):
                follow = partial(self._follow, command=command, route=route, needs=needs)
                self._tasks.spawn(self._past_joins(exchange, command, members, follow))
                return
        self._follow(exchange, command, route, needs)

    async def _past_joins(self, exchange: Exchange, command: Command, members: MemberSelector, then: StartLate) -> None:
        with exchange.times().waiting(WaitKind.JOINS):
            exchange.session = await members.past_joins(exchange.session, command)
        self._guarded(exchange, then)

    def _follow(self, exchange: Exchange, command: Command, route: router.Route, needs: Needs) -> None:
        """Execute the command on its route."""
        session = exchange.session
        new = self._new_collections
        if new is not None and isinstance(route, router.Relay) and new.looks_first(exchange, command, self._route_anew):
            self.measuring.begin(exchange, command, "relay")
            return
        match route:
            case router.Relay():
                self._relay(exchange, command, route, needs)
            case router.Ingest(collection=collection):
                self.measuring.begin(exchange, command, "ingest")
                allowed = self._requirements.rights(session, needs)
                if allowed is None:
                    self._tasks.spawn(self._ask_and_ingest(exchange, command, collection, needs))
                else:
                    self._ingest(exchange, command, collection, needs, allowed)
            case router.Translate(collection=collection):
                meter = self.measuring.begin(exchange, command, "translate")
                if self._may_seek(command) or not self._read_at_once(exchange, command, collection, needs, meter):
                    self._tasks.spawn(self._translate(exchange, command, collection))
            case router.AnswerLocally():
                self.measuring.begin(exchange, command, "answer")
                self.handlers.answer.start(exchange)
            case router.Administer():
                self._administer(exchange, command)
            case router.Resolve(namespace=namespace):
                self._tasks.spawn(self._resolve(exchange, command, namespace))
            case _:
                assert_never(route)

    def _route_anew(self, exchange: Exchange) -> None:
        self._guarded(exchange, lambda exchange: self._route(exchange, exchange.parsed()))

    def _administer(self, exchange: Exchange, command: Command) -> None:
        self.measuring.begin(exchange, command, "admin")
        if self.handlers.admin is None:
            self.handlers.relay.start(exchange, router.RELAY)
        else:
            self.handlers.admin.start(exchange)

    async def _wait(
        self, exchange: Exchange, command: Command, reader: Reader, resolved: router.Resolved | None
    ) -> None:
        with exchange.times().waiting(WaitKind.JOINS):
            await reader.admitted()
        self._guarded(exchange, lambda exchange: self._route(exchange, command, resolved))

    def _relay(self, exchange: Exchange, command: Command, route: router.Relay, needs: Needs) -> None:
        meter = self.measuring.begin(exchange, command, "relay")
        if self._new_collections is None or not self._new_collections.governs(command):
            shortcut = plain_relay(command, route, has_members=self._requirements.has_members)
            self._recogniser.remember(command, needs, meter, shortcut)
        if exchange.session.member is None and not self._may_seek(command):
            self.handlers.relay.start(exchange, route)
        else:
            self._tasks.spawn(self.handlers.relay.start_observed(exchange))

    def _ingest(
        self, exchange: Exchange, command: Command, collection: VirtualCollection, needs: Needs, allowed: bool
    ) -> None:
        """Stage the insert, or relay it: one for the backend itself, or one that the backend has to refuse."""
        meter, inserts = exchange.meter, self._inserts
        template, is_started = None, False
        if inserts is not None and allowed:
            template, is_started = inserts.submit(exchange, command, collection)
        if template is not None and meter is not None and template.repeats(command):
            self._recogniser.remember(command, needs, meter, template)
        if not is_started:
            self.handlers.relay.start(exchange, router.RELAY)

    async def _ask_and_ingest(
        self, exchange: Exchange, command: Command, collection: VirtualCollection, needs: Needs
    ) -> None:
        try:
            with exchange.times().at_backend():
                allowed = await self._requirements.asked_rights(exchange.session, needs)
        except Exception as error:  # noqa: BLE001  (the last catch)
            self.ended(exchange, of_error(error))
        else:
            self._guarded(exchange, lambda exchange: self._ingest(exchange, command, collection, needs, allowed))

    def _read_at_once(
        self, exchange: Exchange, command: Command, collection: VirtualCollection | None, needs: Needs, meter: Meter
    ) -> bool:
        """Start a read of one step; false, with nothing done, if ``proxy.reads.translate`` must handle it."""
        reads, connection = self.handlers.inline_reads, exchange.session.upstream.ready
        if reads is None or connection is None:
            return False
        since_seconds = time.perf_counter() if exchange.slow.records_spans else 0.0
        step = reads.step(command, collection, self._requirements.rights(exchange.session, needs))
        if step is None:
            return False
        if since_seconds:
            exchange.times().was_rewritten(since_seconds)
        self._recogniser.remember(command, needs, meter, step.shortcut)
        reads.send(exchange, step, collection, connection)
        return True

    async def _resolve(self, exchange: Exchange, command: Command, namespace: Namespace) -> None:
        try:
            with exchange.times().at_backend():
                found = await self._namespaces.resolve(namespace)
        except CommandError as error:
            self.ended(exchange, attempt.Refused(error))
        except Exception as error:  # noqa: BLE001  (the last catch)
            self.ended(exchange, attempt.Unexpected(error))
        else:
            self._guarded(exchange, lambda exchange: self._route(exchange, command, (namespace, found)))

    async def _translate(self, exchange: Exchange, command: Command, collection: VirtualCollection | None) -> None:
        exchange.not_sent()
        try:
            document = await self.handlers.translate(exchange.session, command, collection, exchange.times())
            outcome: Outcome = of_reply(document, command.name)
        except Undecodable:
            outcome = attempt.NotTranslatable(collection)
        except Exception as error:  # noqa: BLE001  (the last catch)
            outcome = of_error(error)
        self.ended(exchange, outcome)

    def ended(self, exchange: Exchange, outcome: Outcome) -> None:
        try:
            self._act(exchange, outcome, self._situation(exchange, outcome))
        except Exception as error:  # noqa: BLE001  (the last catch)
            self.measuring.report(exchange, error)
            exchange.close()

    def _situation(self, exchange: Exchange, outcome: Outcome) -> Situation:
        session = exchange.session
        if self.handlers.failover is None or not isinstance(outcome, attempt.MAY_GO_ELSEWHERE):
            return Situation(has_login=bool(session.identity))
        command = exchange.parsed()
        return Situation(
            repeatable=may_be_sent_again(command),
            at_member=session.home is not None,
            may_seek=self._may_seek(command),
            has_login=bool(session.identity),
        )

    def _may_seek(self, command: Command) -> bool:
        """Whether the cursor of this command may be on a previous primary."""
        is_continued = command.name == "getMore" and not command.exhaust_allowed
        return is_continued and self.handlers.members is not None and self.handlers.members.has_former_primaries

    def _act(self, exchange: Exchange, outcome: Outcome, situation: Situation) -> None:
        following = what_follows(outcome, situation)
        match following:
            case Next.REPLY:
                self._reply(exchange, outcome)
            case Next.FINISH:
                self.handlers.record_cursor(exchange.session, outcome)
                exchange.done()
            case Next.REFUSE | Next.REFUSE_RETRYABLY:
                assert isinstance(outcome, attempt.Refused | attempt.Unreachable)
                error: CommandError = outcome.error
                exchange.refuse(error if following is Next.REFUSE else labelled(error, exchange.command))
            case Next.CLOSE:
                exchange.close()
            case Next.REAUTHENTICATE:
                exchange.require_login()
            case Next.FIND_PRIMARY:
                self._tasks.spawn(self._find_primary(exchange, outcome, situation))
            case Next.BEGIN_AGAIN | Next.LEAVE_MEMBER | Next.SEEK_CURSOR:
                self._begin_again(exchange, outcome, situation, following)
            case Next.TRANSLATE:
                assert isinstance(outcome, attempt.NeedsTranslation)
                self._tasks.spawn(self._translate(exchange, exchange.parsed(), outcome.collection))
            case Next.RELAY:
                assert isinstance(outcome, attempt.NotTranslatable)
                route = router.as_it_is(exchange.parsed(), outcome.collection)
                self._guarded(exchange, lambda exchange: self.handlers.relay.start(exchange, route))
            case Next.REPORT | Next.REPORT_AND_CLOSE:
                assert isinstance(outcome, attempt.Unexpected)
                reference = self.measuring.report(exchange, outcome.error)
                if following is Next.REPORT:
                    exchange.refuse(CommandError(1, f"internal error of the proxy, reference {reference}"))
                else:
                    exchange.close()
            case _:
                assert_never(following)

    def _reply(self, exchange: Exchange, outcome: Outcome) -> None:
        assert isinstance(outcome, attempt.Replied | attempt.Deposed | attempt.CursorMissing)
        self.handlers.record_cursor(exchange.session, outcome)
        if outcome.raw is None:
            exchange.reply(outcome.document)
        else:
            exchange.relayed(outcome.raw)

    def _begin_again(self, exchange: Exchange, outcome: Outcome, situation: Situation, following: Next) -> None:
        session, members = exchange.session, self.handlers.members
        if following is Next.SEEK_CURSOR:
            if members is None or not members.seek_cursor(session, exchange.parsed()):
                self._act(exchange, outcome, replace(situation, may_seek=False))
                return
        elif following is Next.LEAVE_MEMBER and members is not None:
            members.avoid(session)
        exchange.session = session.home or session
        self._guarded(exchange, self._start_command)

    async def _find_primary(self, exchange: Exchange, outcome: Outcome, situation: Situation) -> None:
        try:
            assert self.handlers.failover is not None
            exchange.not_sent()
            with exchange.times().waiting(WaitKind.PRIMARY):
                primary = await self.handlers.failover.ask(exchange.session)
            self._act(exchange, outcome, replace(situation, primary=primary))
        except Exception as error:  # noqa: BLE001  (the last catch)
            self.measuring.report(exchange, error)
            exchange.close()
