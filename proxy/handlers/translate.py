"""Commands on virtual collections: ask the rewriter, carry out its plan, answer in the client's terms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, assert_never

import bson
from bson.raw_bson import RawBSONDocument

from catalog.bson.codec import CODEC
from catalog.namespaces import Namespace, VirtualCollection
from proxy.client_fields import ClientFields, take_apart
from proxy.cursor_names import CursorNames, rename_cursor
from rewrite.plan import (
    Answer,
    CatalogStats,
    ClearBuckets,
    Cursor,
    Dialogue,
    Document,
    DropNamespace,
    Effect,
    ForgetNamespace,
    PassThrough,
    Plan,
    Request,
    Resolve,
    Rewriter,
    Single,
    Step,
    Via,
)
from rewrite.profile import Profile


class ClientCommand(Protocol):
    """What is needed of a client's command."""

    @property
    def name(self) -> str:
        """The command's name as the client spelled it."""

    @property
    def namespace(self) -> Namespace:
        """What it names; the collection is empty for database-wide commands."""

    @property
    def body(self) -> bytes:
        """The raw command document."""

    @property
    def sequences(self) -> Sequence[tuple[str, Sequence[bytes]]]:
        """The document sequences by identifier."""


class ClientUpstream(Protocol):
    """The client's own connection to the backend."""

    async def run(self, database: str, body: Mapping[str, Any] | bytes, extra: bytes = b"") -> bytes:
        """One command; the raw reply document. Raises ``BackendUnavailable``."""
        ...


class ClientSession(Protocol):
    """What is needed of a client's session."""

    @property
    def upstream(self) -> ClientUpstream:
        """The client's own connection, opened when it is first used."""


class Service(Protocol):
    """The proxy's own account."""

    async def run_raw(self, database: str, body: Mapping[str, Any]) -> bytes:
        """One command; the raw reply document, error replies too. Raises ``BackendUnavailable``."""
        ...


class Effects(Protocol):
    """What the rest of the proxy must hear about."""

    def clear(self, namespace: Namespace, bucket_ids: tuple[bytes, ...] | None) -> None:
        """These buckets, or all of the collection, leave the catalog (W72)."""

    def forget(self, namespace: Namespace) -> None:
        """The options of the collection, or of a whole database, are looked up anew."""

    def drop(self, namespace: Namespace) -> None:
        """The collection, or a whole database, is gone with its buckets and counters."""


Authorise = Callable[[ClientSession, tuple[str, ...], Namespace], Awaitable[None]]
"""Whether this client may do all these actions on that collection; raises ``CommandError`` 13."""


async def authorise_anything(session: ClientSession, actions: tuple[str, ...], namespace: Namespace) -> None:
    """For backends without access control."""


ACTIONS: Mapping[str, tuple[str, ...]] = {
    "delete": ("remove",),
    "findandmodify": ("find", "remove"),
    "update": ("update",),
}
"""What a client must be allowed on the collection before the proxy's account does it for them."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything outside of one client that plans need."""

    rewriters: Mapping[str, Rewriter]
    profile: Callable[[], Profile]
    resolve: Resolve
    catalog_stats: CatalogStats
    service: Service
    effects: Effects
    cursors: CursorNames
    authorise: Authorise = authorise_anything


class TranslateHandler:
    """Carries out the plans of rewriters."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings

    async def handle(
        self,
        session: ClientSession,
        command: ClientCommand,
        target: VirtualCollection | None,
        *,
        reads_buckets: bool = True,
    ) -> bytes | PassThrough:
        """The raw reply document, or ``PassThrough`` when the client's own message is to be relayed.

        After relaying, the caller hands the reply to ``relayed``. Raises ``CommandError``.
        """
        fields = take_apart(command.body, command.sequences)
        request = Request(
            name=command.name,
            namespace=command.namespace,
            body=fields.body,
            target=target,
            profile=self._around.profile(),
            resolve=self._around.resolve,
            in_transaction=fields.in_transaction,
            has_txn_number=fields.has_txn_number,
            reads_buckets=reads_buckets,
            catalog_stats=self._around.catalog_stats,
            statement_ids=fields.statement_ids,
        )
        plan = self._around.rewriters[command.name](request)
        return await self._carry_out(plan, session, command, fields)

    def relayed(self, plan: PassThrough, reply: bytes | None) -> None:
        """The client's message was relayed: carry out what follows a reply that says ``ok: 1``.

        ``None``: no reply came, or the client wanted none; then everything that may have changed has changed.
        """
        if plan.effects and (reply is None or is_ok(reply)):
            for effect in plan.effects:
                self._take_effect(effect)

    async def _carry_out(
        self, plan: Plan, session: ClientSession, command: ClientCommand, fields: ClientFields
    ) -> bytes | PassThrough:
        steps = _Steps(session, self._around.service, fields)
        match plan:
            case PassThrough():
                return plan
            case Answer():
                return bson.encode(plan.reply, codec_options=CODEC)
            case Single():
                return self._reshaped(plan, await steps.run(plan.step))
            case Cursor():
                return self._renamed(plan, await steps.run(plan.step))
            case Dialogue():
                actions = ACTIONS.get(command.name.lower())
                if actions:
                    await self._around.authorise(session, actions, command.namespace)
                return await self._converse(plan.run(), steps)
        assert_never(plan)

    def _reshaped(self, plan: Single, reply: bytes) -> bytes:
        if not is_ok(reply):
            return _reshaped_by(plan.reshape_error, reply)
        for effect in plan.effects:
            self._take_effect(effect)
        return _reshaped_by(plan.reshape, reply)

    def _renamed(self, plan: Cursor, reply: bytes) -> bytes:
        renamed, cursor_id, backend = rename_cursor(reply, plan.namespace)
        if backend is None:
            return _reshaped_by(plan.reshape_error, reply)
        if backend != plan.namespace:
            self._around.cursors.opened(cursor_id, backend)
        for effect in plan.effects:
            self._take_effect(effect)
        return renamed

    async def _converse(
        self, conversation: Generator[Step | Effect, Mapping[str, Any], Document], steps: _Steps
    ) -> bytes:
        try:
            said = next(conversation)
            while True:
                answer: Mapping[str, Any] = {}
                if isinstance(said, Step):
                    reply = await steps.run(said)
                    answer = RawBSONDocument(reply) if said.raw else _decoded(reply)
                else:
                    self._take_effect(said)
                said = conversation.send(answer)
        except StopIteration as stop:
            return bson.encode(stop.value, codec_options=CODEC)
        finally:
            conversation.close()

    def _take_effect(self, effect: Effect) -> None:
        match effect:
            case ClearBuckets():
                self._around.effects.clear(effect.namespace, effect.bucket_ids)
            case ForgetNamespace():
                self._around.effects.forget(effect.namespace)
            case DropNamespace():
                self._around.effects.drop(effect.namespace)
            case _:
                assert_never(effect)


class _Steps:
    """Sends the steps of one command, each over the connection that it names."""

    def __init__(self, session: ClientSession, service: Service, fields: ClientFields) -> None:
        self._session = session
        self._service = service
        self._fields = fields
        self._is_first = True

    async def run(self, step: Step) -> bytes:
        """The raw reply of one step."""
        match step.via:
            case Via.CLIENT:
                extra = self._fields.extra(step.statement, starts_transaction=self._is_first)
                self._is_first = False
                return await self._session.upstream.run(step.database, step.body, extra)
            case Via.SERVICE:
                body = step.body
                if step.statement is not None:
                    body = {**body, **self._fields.service_extra(step.statement)}
                return await self._service.run_raw(step.database, body)
        assert_never(step.via)


def _decoded(reply: bytes) -> Document:
    return bson.decode(reply, codec_options=CODEC)


def _reshaped_by(reshape: Callable[[Document], Document] | None, reply: bytes) -> bytes:
    if reshape is None:
        return reply
    return bson.encode(reshape(_decoded(reply)), codec_options=CODEC)


def is_ok(reply: bytes) -> bool:
    """Whether a raw command reply says ``ok: 1``, whatever its number type (C26)."""
    return RawBSONDocument(reply).get("ok") == 1
