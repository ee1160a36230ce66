"""Relays commands unchanged over the client's own connection to the backend.

Most replies are streamed to the client. A reply that may change collections or the client's identity is collected
first, so that the proxy applies the change before the client knows of it. The exchange gets the outcome of the attempt
(``proxy.request.attempt``); retries are decided elsewhere.
"""

from __future__ import annotations

from typing import Any, Final

import bson

from catalog.bson.codec import TOLERANT
from catalog.errors import BackendUnavailable
from catalog.identity import Identity, identity_of
from proxy.observe.limited_log import noticed
from proxy.observe.tasks import TaskSet
from proxy.relay.transaction_effects import TransactionEffects
from proxy.request.attempt import Outcome, Replied, Unexpected, of_error, of_reply
from proxy.request.command import Command
from proxy.request.command_table import ENDS_TRANSACTION
from proxy.request.exchange import Exchange
from proxy.request.outcome import may_have_changed
from proxy.request.ports import Announce, Effects
from proxy.request.router import Relay
from proxy.request.session import Session
from proxy.request.unanswered import CHANGES_COLLECTIONS, Unanswered
from proxy.upstream.connection import UpstreamConnection, UpstreamLost, reply_document
from proxy.wire import op_msg

_NOT_OPEN: Final = frozenset({225, 251, 256})
"""What a server says of a transaction that it does not have, or no longer."""


class RelayHandler:
    """Relays commands over the client's own upstream connection."""

    def __init__(self, tasks: TaskSet, effects: Effects, announce: Announce, unanswered: Unanswered) -> None:
        self._tasks = tasks
        self._announce = announce
        self._effects = effects
        self._in_transactions = TransactionEffects(effects)
        self._unanswered = unanswered

    def start(self, exchange: Exchange, route: Relay) -> None:
        """Relay the command; needs no task if the connection is open and the proxy does not have to see the reply.

        The exchange gets the outcome. Raises ``UpstreamLost`` if the connection has just ended.
        """
        exchange.sent()
        connection = exchange.session.upstream.ready
        if connection is None:
            self._tasks.spawn(self._connect_first(exchange, route))
        elif self._is_observed(exchange, route):
            self._tasks.spawn(self._observe(exchange, route))
        elif self._ends_open(exchange):
            self._tasks.spawn(self.start_observed(exchange))
        else:
            _stream(exchange, connection)

    async def start_observed(self, exchange: Exchange) -> None:
        """Relay a command whose reply tells of a cursor, or of the end of a transaction; the outcome has all of it."""
        exchange.sent()
        try:
            reply = await exchange.session.upstream.exchange(exchange.message.raw)
            document = reply_document(reply)
            outcome: Outcome = of_reply(document, exchange.parsed().name, reply.raw)
            self._note_end(exchange, document)
        except Exception as error:  # noqa: BLE001  (it becomes the outcome)
            outcome = of_error(error)
        exchange.end(outcome)

    def _is_observed(self, exchange: Exchange, route: Relay) -> bool:
        return bool(route.effects) or route.changes_identity or self._in_transactions.concerns(exchange.command)

    # --- transactions that are open -----------------------------------------------------------------------------

    def transaction_begins(self, exchange: Exchange, command: Command) -> None:
        """Record a transaction whose first command this is."""
        number = command.get("txnNumber")
        if command.in_transaction and isinstance(number, int):
            exchange.session.open_transactions.begun(_session_key(exchange, command), number)

    def _ends_open(self, exchange: Exchange) -> bool:
        command, numbers = exchange.command, exchange.session.open_transactions.numbers
        if not numbers or command is None or command.name not in ENDS_TRANSACTION:
            return False
        return exchange.expects_reply and _session_key(exchange, command) in numbers

    def _note_end(self, exchange: Exchange, reply: bytes) -> None:
        """Record that a transaction has ended, if the command has ended one and it is not still open."""
        command = exchange.command
        if command is None or not self._ends_open(exchange):
            return
        said = bson.decode(reply, codec_options=TOLERANT)
        number = command.get("txnNumber")
        if isinstance(number, int) and (said.get("ok") or said.get("code") in _NOT_OPEN):
            exchange.session.open_transactions.ended(_session_key(exchange, command), number)

    # ------------------------------------------------------------------------------------------------------------

    async def _connect_first(self, exchange: Exchange, route: Relay) -> None:
        try:
            connection = await exchange.session.upstream.connect()
            if self._is_observed(exchange, route):
                await self._observe(exchange, route)
            elif self._ends_open(exchange):
                await self.start_observed(exchange)
            else:
                _stream(exchange, connection)
        except Exception as error:  # noqa: BLE001  (it becomes the outcome)
            exchange.end(_of_doubtful(error))

    async def _observe(self, exchange: Exchange, route: Relay) -> None:
        """Relay a command whose reply the proxy must see before the client does.

        The backend is asked for a reply even if the client wants none: the proxy needs the result, and the client's
        next command must wait for it.
        """
        if exchange.expects_reply:
            exchange.end(await self._observed(exchange, route, exchange.message.raw))
            return
        exchange.not_sent()
        async with self._unanswered.turn(exchange.session.owner, exchange.times()):
            exchange.sent()
            outcome = await self._observed(exchange, route, op_msg.asking_for_reply(exchange.message.raw))
        exchange.end(Replied(None) if isinstance(outcome, Replied) else outcome)

    async def _observed(self, exchange: Exchange, route: Relay, message: bytes) -> Outcome:
        """The outcome of a command, after its effects; ``message`` asks for a reply."""
        upstream = exchange.session.upstream
        try:
            if route.changes_identity:
                await upstream.connect()
                upstream.is_bound = True
            try:
                reply = await upstream.exchange(message)
            except UpstreamLost:
                await self._apply(exchange, route, changed=True)
                raise
            document = reply_document(reply)
            self._note_end(exchange, document)
            if route.effects or self._in_transactions.concerns(exchange.command):
                await self._apply(exchange, route, changed=may_have_changed(document))
            if route.changes_identity:
                await learn_identity(exchange.session, bson.decode(document, codec_options=TOLERANT))
        except Exception as error:  # noqa: BLE001  (it becomes the outcome)
            return _of_doubtful(error)
        return Replied(document, reply.raw)

    async def _apply(self, exchange: Exchange, route: Relay, *, changed: bool) -> None:
        """Apply the effects of a command; ``changed``: whether it has changed something, or may have."""
        command, identity = exchange.command, exchange.session.identity
        if self._in_transactions.concerns(command):
            assert command is not None
            self._in_transactions.ended(command, identity, changed=changed)
        if not changed or not route.effects:
            return
        if command is not None and command.in_transaction:
            self._in_transactions.hold(command, identity, route.effects)
            return
        for effect in route.effects:
            self._effects(effect)
        if command is not None and command.name in CHANGES_COLLECTIONS:
            await self._announce(route.effects)


def _of_doubtful(error: Exception) -> Outcome:
    """The outcome of an error; after an internal one, the command's result and the client's identity are unknown."""
    outcome = of_error(error)
    return Unexpected(error, in_doubt=True) if isinstance(outcome, Unexpected) else outcome


class _Unwanted:
    """Drops the reply to a command whose client wants none; the command ends with it."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def whole(self, reply: bytes) -> None:
        self.done()

    def write(self, data: bytes) -> None:
        pass

    def done(self) -> None:
        self._exchange.end(Replied(None))

    def deposed(self, reply: bytes) -> None:
        self.done()

    def failed(self, error: BackendUnavailable, partly_sent: bool) -> None:
        self._exchange.failed(error, partly_sent)


def _stream(exchange: Exchange, connection: UpstreamConnection) -> None:
    if exchange.expects_reply:
        connection.stream(exchange.message.raw, exchange)
    elif connection.is_ahead:
        connection.stream(op_msg.asking_for_reply(exchange.message.raw), _Unwanted(exchange))
    else:
        connection.send(exchange.message.raw)
        if connection.takes_no_more:
            # Commands without a reply have no other back-pressure: without this, they would accumulate here.
            connection.when_writable(lambda: exchange.end(Replied(None)))
        else:
            exchange.end(Replied(None))


async def learn_identity(session: Session, reply: dict[str, Any]) -> None:
    """After a step of a login or logout: ask the backend which users this connection has now.

    Raises ``CommandError`` if the user has too many connections.
    """
    if not reply.get("ok"):
        reason = str(reply.get("errmsg", ""))
        noticed.info("login failed", peer=session.peer, connection=session.connection_id, reason=reason)
        return
    if reply.get("done") is False:
        return
    status = bson.decode(await session.upstream.run("admin", {"connectionStatus": 1}), codec_options=TOLERANT)
    users = status.get("authInfo", {}).get("authenticatedUsers", []) if status.get("ok") else []
    session.identity = identity_of((user["user"], user["db"]) for user in users)
    if session.identity and session.on_login is not None:
        session.on_login()
    if session.on_identity is not None:
        session.on_identity()


def _session_key(exchange: Exchange, command: Command) -> tuple[bytes, Identity]:
    """By which ``OpenTransactions`` knows the session of a command."""
    return command.raw(b"lsid"), exchange.session.identity
