"""Executes commands on time-series collections: rewrite, carry out the plan, build the client's reply."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Final, assert_never

import bson
from bson.errors import InvalidBSON

from catalog.bson.codec import CODEC
from catalog.errors import UNAUTHORIZED, UUID_MISMATCH, BackendUnavailable, CommandError
from catalog.namespaces import Namespace, VirtualCollection
from proxy.reads.conversation import Conversation
from proxy.reads.cursor_names import rename_cursor
from proxy.reads.cursors import (
    ClientCommand,
    ClientSession,
    CursorCommand,
    NotOnBuckets,
    continue_as_it_is,
    continue_cursor,
    error_code,
    is_ok,
    knows_cursor,
)
from proxy.reads.final_wait import FinalWait
from proxy.reads.plan_context import PlanContext
from proxy.reads.plan_environment import PlanEnvironment
from proxy.reads.replies import decoded, error_by, reshaped_by, retryable
from proxy.reads.rewriting_pace import RewritingPace
from proxy.request.authorisation import INSERT, may_upsert, names_own_roles, write_actions
from proxy.request.command_table import CHANGE_STREAM, HAS_VIEW, INLINE, OPENS_CURSOR, TABLE
from proxy.request.outcome import may_have_changed
from proxy.request.own_steps import client_reply
from proxy.request.session_fields import ClientFields, Undecodable, in_one_document, session_of, take_apart
from proxy.request.times import Times, WaitKind
from proxy.upstream.connection import UpstreamLost
from proxy.upstream.not_primary import NOT_PRIMARY_CODES, not_primary
from rewrite.bucket_writes import is_unacknowledged
from rewrite.commands.refused import refuse_always, would_cap_buckets
from rewrite.plan import (
    GUESS_FAILED,
    Cursor,
    Dialogue,
    Document,
    Effect,
    ForgetNamespace,
    PassThrough,
    Pause,
    Plan,
    Request,
    Single,
    Step,
    Via,
)


class TranslateHandler:
    """Executes the plans of rewriters, for the ``commands`` that have one."""

    def __init__(self, environment: PlanEnvironment) -> None:
        self._environment = environment
        self.context = PlanContext(environment.profile, environment.cursors, environment.holds_extended_range)
        self._pace = RewritingPace()
        self.commands = frozenset((*environment.rewriters, "getMore"))
        self._not_on_buckets = NotOnBuckets()
        """With native access, so that only the first ``getMore`` of a cursor is not simply relayed."""

    def takes_cursor(self, command: CursorCommand) -> bool:
        """Whether a ``getMore`` must be renamed, because its cursor is on buckets or may be."""
        if command.name != "getMore":
            return False
        if knows_cursor(self._environment.cursors, command.get("getMore")):
            return True
        if not self._environment.profile().has_cursors_on_buckets or command.get("getMore") in self._not_on_buckets:
            return False
        named = Namespace(command.namespace.database, str(command.get("collection")))
        return self._environment.resolve(named) is not None

    async def __call__(
        self, session: ClientSession, command: ClientCommand, collection: VirtualCollection | None, times: Times
    ) -> bytes:
        """Execute a command; returns the raw reply document. ``collection`` is ``None`` for database-wide commands.

        Raises ``CommandError`` if the proxy refuses or the backend cannot be reached, and ``Undecodable`` if the
        command must be relayed.
        """
        if command.name == "getMore":
            with times.at_backend():
                return await self._more(session, command)
        if would_cap_buckets(command.name, command.namespace, self.context.profile):
            with times.at_backend():
                await self._check_rights(session, command)
        try:
            fields = await self._pace.run(lambda: take_apart(command.body, command.sequences, command.name))
        except Undecodable:
            refuse_always(command.name, command.namespace, self.context.profile)
            raise
        reads_buckets = True
        if collection is not None and command.name in HAS_VIEW:
            with times.at_backend():
                reads_buckets = await self._environment.gate.reads_buckets(session, collection.namespace)
        steps = _Steps(session, self._environment, fields, command.namespace, times)
        attempts_left = ATTEMPTS
        while True:
            attempts_left -= 1
            target = None if collection is None else self.context.as_written(collection)
            planned = partial(self._plan, command, target, fields, reads_buckets=reads_buckets)
            plan = await self._pace.run(planned, times.was_rewritten)
            try:
                return await self._carry_out(plan, command, steps)
            except CommandError as error:
                if error.code != UUID_MISMATCH or collection is None or not attempts_left:
                    raise
            # Its collection has been dropped or made again, without this process.
            collection = await self._environment.resolve_anew(collection.namespace)
            if collection is None:
                raise Undecodable("it is no time-series collection any more")

    async def _check_rights(self, session: ClientSession, command: ClientCommand) -> None:
        """Refuse in the server's words what it refuses before the collection matters; raises ``CommandError``."""
        database, collection = command.namespace
        if not await self._environment.gate.allows(session, TABLE[command.name].rights, command.namespace):
            asked = f'{{ {command.name}: "{collection}", $db: "{database}" }}'
            raise CommandError(UNAUTHORIZED, f"not authorized on {database} to execute command {asked}")

    async def _more(self, session: ClientSession, command: ClientCommand) -> bytes:
        known = self._environment
        try:
            fields = session_of(command.body)
        except Undecodable:
            reply = await continue_as_it_is(session, known.cursors, command)
            if reply is None:
                raise
            return reply
        reply = await continue_cursor(session, known.cursors, command, known.resolve, fields, known.was_relayed)
        if not known.profile().uses_buckets:
            self._not_on_buckets.answered(command.body, reply, known.cursors)
        return reply

    def _plan(
        self, command: ClientCommand, target: VirtualCollection | None, fields: ClientFields, *, reads_buckets: bool
    ) -> Plan:
        request = Request(
            name=command.name,
            namespace=command.namespace,
            body=fields.body,
            target=target,
            profile=self.context.profile,
            in_transaction=fields.in_transaction,
            has_txn_number=fields.has_txn_number,
            reads_buckets=reads_buckets,
            catalog_stats=self._environment.catalog_stats,
            about=self._environment.about,
            statement_ids=fields.statement_ids,
        )
        return self._environment.rewriters[command.name](request)

    # --- parts of it, for ``proxy.reads.inline_reads`` --------------------------------------------------------------

    def plan_of_read(self, command: ClientCommand, target: VirtualCollection) -> Plan:
        """The plan for a client that may read buckets; raises ``CommandError`` and ``Undecodable``."""
        return self._plan(command, target, take_apart(command.body, command.sequences), reads_buckets=True)

    def steps_of_read(self, command: ClientCommand) -> Sequence[Mapping[str, Any]]:
        """The bodies of the steps of a read of a known collection, planned again; empty for any other command."""
        collection = self._environment.resolve(command.namespace)
        if collection is None or command.name not in INLINE:
            return ()
        try:
            plan = self.plan_of_read(command, self.context.as_written(collection))
        except (CommandError, Undecodable):
            return ()
        return (plan.step.body,) if isinstance(plan, Single | Cursor) else ()

    async def _carry_out(self, plan: Plan, command: ClientCommand, steps: _Steps) -> bytes:
        fields = steps.fields
        match plan:
            case PassThrough():
                return await self._pass(plan, steps, command)
            case Single() | Cursor():
                reply = await steps.run(plan.step)
                code = error_code(reply)
                if plan.otherwise is not None and code == GUESS_FAILED:
                    reply = await steps.run(await self._pace.run(plan.otherwise))
                    code = error_code(reply)
                if code == UUID_MISMATCH:
                    # The view is that of the collection that is there now.
                    self._environment.take_effect(ForgetNamespace(steps.namespace))
                    return await self._pass(PassThrough(plan.effects), steps, command)
                if plan.step.via is Via.CLIENT and code == UNAUTHORIZED:
                    # The backend decides about the client's own command, and its refusal is the reply.
                    return await self._pass(PassThrough(plan.effects), steps, command)
                if not isinstance(plan, Single):
                    return self.renamed(plan, reply, steps.session.upstream.process)
                try:
                    return self.reshaped(plan, reply)
                except InvalidBSON:
                    # Some stored strings are not valid UTF-8: only the backend's own reply is exact.
                    return await self._pass(PassThrough(), steps, command) if command.name in HAS_VIEW else reply
            case Dialogue():
                with steps.times.at_backend():
                    allowed = await self._may_write(command, steps.session)
                if not allowed:
                    # The backend refuses the command.
                    return await self._pass(PassThrough(), steps, command)
                reply = bson.encode(await self._executed(plan, steps), codec_options=CODEC)
                return retryable(reply) if fields.has_txn_number and not_primary(reply) is not None else reply
        assert_never(plan)

    async def _may_write(self, command: ClientCommand, session: ClientSession) -> bool:
        gate, namespace = self._environment.gate, command.namespace
        if names_own_roles(command):
            return False
        actions = write_actions(command, TABLE[command.name].rights)
        if not await gate.allows(session, actions, namespace):
            return False
        return command.name != "update" or await gate.allows(session, INSERT, namespace) or not may_upsert(command)

    async def _executed(self, plan: Dialogue, steps: _Steps) -> Document:
        """The reply to a dialogue; raises ``Undecodable`` if the command must be relayed.

        If another primary is elected before its write concern is met, a retryable command is executed again, which
        writes what the new primary does not have: drivers send it again only once, perhaps because of this election.
        """
        attempts_left = ATTEMPTS if steps.fields.has_txn_number else 1
        while True:
            attempts_left -= 1
            try:
                return await self._waited_for(plan, steps)
            except CommandError as error:
                if error.code not in NOT_PRIMARY_CODES or not attempts_left or steps.is_gone:
                    raise

    async def _waited_for(self, plan: Dialogue, steps: _Steps) -> Document:
        """Run a dialogue and wait for its write concern."""
        wait = FinalWait(self._environment.replication, steps.fields.body, steps.namespace)
        if wait.probe is not None:
            steps.wait = None
            probed = decoded(await steps.run(Step(steps.namespace.database, wait.probe, Via.SERVICE)))
            if not wait.began(probed):
                return probed
        steps.wait = wait
        said = await self._converse(plan.run(), steps)
        if isinstance(said, PassThrough):
            raise Undecodable("the backend does all of it")
        with steps.times.waiting(WaitKind.REPLICATION):
            return dict(await wait.finish(said, lambda: steps.is_gone))

    async def _pass(self, plan: PassThrough, steps: _Steps, command: ClientCommand) -> bytes:
        whole = in_one_document(command.body, command.sequences)
        try:
            with steps.times.at_backend():
                reply = await steps.session.upstream.run(command.namespace.database, whole)
        except UpstreamLost:
            # The outcome is unknown: assume that everything that may have changed has changed.
            self._take_effects(plan.effects)
            await self._environment.announce(plan.effects)
            raise
        if plan.effects and may_have_changed(reply):
            self._take_effects(plan.effects)
            await self._environment.announce(plan.effects)
        self.note_cursor(command, reply, steps.session.upstream.process)
        return reply

    def note_cursor(self, command: ClientCommand, reply: bytes, process: bytes) -> None:
        """Record the cursor that a command has opened which this server process got as its client sent it."""
        if is_ok(reply) and command.name in OPENS_CURSOR and CHANGE_STREAM not in command.body:
            _, cursor_id, backend = rename_cursor(reply, command.namespace)
            self._environment.cursors.opened(cursor_id, backend or command.namespace, process)

    def reshaped(self, plan: Single, reply: bytes) -> bytes:
        """The client's reply from the backend's; raises ``InvalidBSON`` if decoding would lose information."""
        if not is_ok(reply):
            return error_by(plan.reshape_error, reply)
        self._take_effects(plan.effects)
        if plan.reshape_raw is not None:
            return plan.reshape_raw(reply)
        return reshaped_by(plan.reshape, reply)

    def renamed(self, plan: Cursor, reply: bytes, process: bytes) -> bytes:
        """The client's reply from that of this server process; records its cursor."""
        renamed, cursor_id, backend = rename_cursor(reply, plan.namespace)
        if backend is None:
            return error_by(plan.reshape_error, reply)
        self._environment.cursors.opened(cursor_id, backend, process)
        self._take_effects(plan.effects)
        return renamed

    async def _converse(
        self, conversation: Generator[Step | Effect | Pause, Mapping[str, Any], Document | PassThrough], steps: _Steps
    ) -> Document | PassThrough:
        talk = Conversation(conversation, self._environment.turns, steps.owner, steps.times)
        try:
            said = await talk.begin()
            while said is not None:
                match said:
                    case Step():
                        said = await talk.go_on(await steps.run(said), raw=said.raw)
                    case Pause():
                        await asyncio.sleep(0)
                        said = await talk.go_on()
                    case _:
                        self._environment.take_effect(said)
                        said = await talk.go_on()
            return talk.result
        finally:
            talk.close()

    def _take_effects(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            self._environment.take_effect(effect)


CLIENT_DISCONNECT: Final = 279
ATTEMPTS: Final = 3
"""How often a command is executed at most, while primaries or collections change."""


class _Steps:
    """Sends the steps of one command, over the client's own or a service connection."""

    def __init__(
        self,
        session: ClientSession,
        environment: PlanEnvironment,
        fields: ClientFields,
        namespace: Namespace,
        times: Times,
    ) -> None:
        self.session = session
        self._environment = environment
        self.fields = fields
        self.namespace = namespace
        self.times = times
        self.wait: FinalWait | None = None
        self._is_first = True

    async def run(self, step: Step) -> bytes:
        """Send one step; returns the raw reply."""
        self.times.step(step.body)
        match step.via:
            case Via.CLIENT:
                extra = self.fields.extra(step.statement, starts_transaction=self._is_first)
                self._is_first = False
                with self.times.at_backend():
                    return await self.session.upstream.run(step.database, step.body, extra)
            case Via.SERVICE:
                body = step.body if self.wait is None else self.wait.sent(step.body)
                if step.statement is not None:
                    body = {**body, **self.fields.service_extra(step.statement, self._service_session())}
                async with self._environment.places.place(self.owner, self.times):
                    self._check_client(body)
                    with self.times.at_backend():
                        reply = await self._environment.service.run_raw(step.database, body)
                return client_reply(reply, holds_data=step.holds_data)
        assert_never(step.via)

    @property
    def owner(self) -> Hashable:
        """The client for fair turns: its users and address."""
        return self.session.owner

    @property
    def is_gone(self) -> bool:
        """Whether the client has disconnected."""
        return self.session.upstream.is_closed

    def _check_client(self, body: Mapping[str, Any]) -> None:
        """Raises ``BackendUnavailable`` before a read if the client has disconnected, which ends the command.

        Writes are still sent, and a command without a reply (``w: 0``) is completed, because its client may disconnect
        immediately.
        """
        if self.session.upstream.is_closed and next(iter(body)) in OPENS_CURSOR and not self._is_unacknowledged:
            raise BackendUnavailable("the client has disconnected", code=CLIENT_DISCONNECT)

    @property
    def _is_unacknowledged(self) -> bool:
        concern = self.fields.body.get("writeConcern")
        return isinstance(concern, Mapping) and is_unacknowledged(concern)

    def _service_session(self) -> Mapping[str, Any] | None:
        own = self.fields.own_session
        if own is None:
            return None
        return self._environment.sessions.session_of(self.session.identity, own, self.namespace)
