"""Commands that go to the backend as they came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bson

from catalog.bson.codec import TOLERANT
from catalog.errors import BackendUnavailable, CommandError
from catalog.identity import identity_of
from proxy.observe.limited_log import noticed
from proxy.observe.tasks import TaskSet
from proxy.relay.failover import Failover, Way
from proxy.relay.transaction_effects import TransactionEffects
from proxy.request.command import Command
from proxy.request.command_table import REPEATABLE
from proxy.request.exchange import Exchange, labelled
from proxy.request.outcome import may_have_changed
from proxy.request.ports import Effects
from proxy.request.router import Relay
from proxy.request.session import Session
from proxy.upstream.connection import UpstreamConnection, UpstreamLost, reply_document
from proxy.wire import op_msg


class RelayHandler:
    """Relays commands over the client's own upstream connection."""

    def __init__(self, tasks: TaskSet, effects: Effects, failover: Failover | None = None) -> None:
        """``failover`` is for replica sets."""
        self._tasks = tasks
        self._effects = effects
        self._in_transactions = TransactionEffects(effects)
        self.failover = failover

    def start(self, exchange: Exchange, route: Relay) -> None:
        """Relay; without a task when the connection is open and nothing in the reply concerns the proxy."""
        connection = exchange.session.upstream.ready
        self.may_go_elsewhere(exchange, route)
        if connection is None:
            self._tasks.spawn(self._connect_first(exchange, route))
        elif self._is_observed(exchange, route):
            self._tasks.spawn(self._observe(exchange, route))
        else:
            _stream(exchange, connection)

    def _is_observed(self, exchange: Exchange, route: Relay) -> bool:
        return bool(route.effects) or route.changes_identity or self._in_transactions.concerns(exchange.command)

    def may_go_elsewhere(self, exchange: Exchange, route: Relay) -> None:
        """See to it that a command that may be sent again is, when the primary is lost."""
        if self.failover is not None and may_be_sent_again(exchange.command):
            exchange.on_lost = lambda otherwise: self._go_elsewhere(exchange, route, otherwise)

    def _go_elsewhere(self, exchange: Exchange, route: Relay, otherwise: Callable[[], None]) -> None:
        self._tasks.spawn(self._ask_the_next(exchange, route, otherwise))

    async def _ask_the_next(self, exchange: Exchange, route: Relay, otherwise: Callable[[], None]) -> None:
        assert self.failover is not None
        match await self.failover.way_on(exchange.session):
            case Way.STAYS:
                otherwise()
            case Way.AGAIN:
                await self._connect_first(exchange, route)
            case Way.ANEW:
                exchange.come_again()

    async def _connect_first(self, exchange: Exchange, route: Relay) -> None:
        try:
            connection = await exchange.session.upstream.connect()
            if self._is_observed(exchange, route):
                await self._observe(exchange, route)
            else:
                _stream(exchange, connection)
        except UpstreamLost as error:
            exchange.failed(error, partly_sent=False)
        except BackendUnavailable as error:
            exchange.refuse(labelled(error, exchange.command))
        except CommandError as error:
            exchange.refuse(error)
        except Exception:
            exchange.close()
            raise

    async def _observe(self, exchange: Exchange, route: Relay) -> None:
        """Relay a command whose reply the proxy must see before the client does.

        Also when the client wants none: nothing else would tell what became of the command, and its next one has to
        wait for that.
        """
        upstream = exchange.session.upstream
        message = exchange.message.raw if exchange.expects_reply else op_msg.asking_for_reply(exchange.message.raw)
        try:
            if route.changes_identity:
                await upstream.connect()
                upstream.is_bound = True
            try:
                reply = await upstream.exchange(message)
            except UpstreamLost:
                self._apply(exchange, route, changed=True)
                raise
            document = reply_document(reply)
            if route.effects or self._in_transactions.concerns(exchange.command):
                self._apply(exchange, route, changed=may_have_changed(document))
            if route.changes_identity:
                await learn_identity(exchange.session, bson.decode(document, codec_options=TOLERANT))
        except BackendUnavailable as error:
            exchange.failed(error, partly_sent=False)
        except CommandError as error:
            exchange.refuse(error)
        except Exception:
            # A bug of ours; what the backend made of the command is not known to the client, nor who it is now.
            exchange.close()
            raise
        else:
            if exchange.expects_reply:
                exchange.relayed(reply.raw)
            else:
                exchange.reply(None)

    def _apply(self, exchange: Exchange, route: Relay, *, changed: bool) -> None:
        """``changed``: whether the command changed something, or may have."""
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


def may_be_sent_again(command: Command | None) -> bool:
    """Whether a command does no more harm when it runs twice, as the servers of a cluster judge it too.

    Retryable writes carry a number under which the backend knows what it has done; reads change nothing.
    """
    if command is None or command.in_transaction or not command.expects_reply or command.exhaust_allowed:
        return False
    if command.name in REPEATABLE:
        return command.name != "aggregate" or not (b"$out\0" in command.body or b"$merge\0" in command.body)
    return command.has_txn_number


def _stream(exchange: Exchange, connection: UpstreamConnection) -> None:
    if exchange.expects_reply:
        connection.stream(exchange.message.raw, exchange)
    else:
        connection.send(exchange.message.raw)
        if connection.takes_no_more:
            # Nobody waits for an answer to these; without this they would pile up here.
            connection.when_writable(lambda: exchange.reply(None))
        else:
            exchange.reply(None)


async def learn_identity(session: Session, reply: dict[str, Any]) -> None:
    """After a step of a login or logout: ask the backend who this connection is now."""
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
