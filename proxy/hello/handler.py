"""Handles ``hello``: the proxy replies itself, and includes the backend's reply to a login inside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import bson
from bson import ObjectId

from catalog.bson.codec import TOLERANT
from catalog.bson.raw import document, element, string_value
from catalog.errors import CommandError
from proxy.hello.documents import (
    CARRIED_FIELDS,
    TopologyVersion,
    await_time_ms,
    check_types,
    describe,
    negotiate,
    whole_number,
)
from proxy.observe.tasks import TaskSet
from proxy.relay.handler import learn_identity
from proxy.request.attempt import Refused, Replied
from proxy.request.client_metadata import check_metadata, without_our_name
from proxy.request.command import Command
from proxy.request.exchange import Exchange, encode
from proxy.request.login import speculates_with_certificate
from proxy.request.ports import BackendView
from proxy.request.session import Session
from proxy.upstream.connection import reply_document
from proxy.wire import op_msg
from proxy.wire.framing import DOCUMENT, top_level
from proxy.wire.message import HEADER, Message

_OWN_FIELDS: Final = (b"compression", b"topologyVersion", b"maxAwaitTimeMS", b"loadBalanced")
"""Fields that concern only the proxy."""

_OBJECT: Final = bytes([DOCUMENT])
_HELLO_OK: Final = b"\x08helloOk\0\1"
_HELLO: Final = b"\x10hello\0\1\0\0\0"
_ADMIN: Final = b"\x02$db\0" + string_value(b"admin")[1:]

_LOGIN_FIELDS: Final = (b"saslSupportedMechs", b"speculativeAuthenticate")


SHORTEST_PERIOD_MS: Final = 500
"""Minimum interval of a stream of replies while nothing changes; drivers never use a shorter one."""
LONGEST_WAIT_MS: Final = 24 * 3600 * 1000


class HelloHandler:
    """Replies to hello, including those that wait for a change and the streams that drivers use for monitoring.

    The reply never changes, so waiting clients get it when their time is over.
    """

    def __init__(self, backend: BackendView, tasks: TaskSet, compressors: Sequence[str]) -> None:
        self._backend = backend
        self._tasks = tasks
        self.compressors = tuple(compressors)
        self._version = TopologyVersion(ObjectId())
        self.waiting: set[_Watch] = set()

    def interrupt(self, keep: Callable[[Session], bool] = lambda session: False) -> None:
        """Close the connections of waiting clients, so that drivers discard all their connections to this proxy.

        ``keep``: those that stay.
        """
        for watch in list(self.waiting):
            if not keep(watch.session):
                watch.stop()

    def start(self, exchange: Exchange) -> None:
        """Reply to one hello; raises ``CommandError``."""
        command = exchange.command
        assert command is not None
        client = command.fields.get(b"client")
        if client is not None and exchange.session.has_client_metadata:
            raise CommandError(186, "The client metadata document may only be sent in the first hello")
        check_types(command)
        if client is not None:
            check_metadata(client[0], command.raw(b"client"))
        wait_ms = await_time_ms(command, self._version)
        self._remember(exchange.session, command)
        if not CARRIED_FIELDS.isdisjoint(command.fields):
            self._tasks.spawn(self._carry(exchange, command))
        elif wait_ms is None:
            exchange.end(Replied(self.document(exchange, {})))
        else:
            self._agree(exchange.session, command)
            _Watch(self, exchange, streaming=command.exhaust_allowed).wait(first_ms=wait_ms)

    def _remember(self, session: Session, command: Command) -> None:
        session.has_client_metadata = session.has_client_metadata or b"client" in command.fields
        if not session.upstream.hello:
            session.upstream.hello = _greeting(command)

    def _agree(self, session: Session, command: Command) -> None:
        if b"compression" in command.fields:
            session.compressors = negotiate(command.get("compression"), self.compressors)

    async def _carry(self, exchange: Exchange, command: Command) -> None:
        """Send a hello that begins a login to the backend, too, over the client's own connection."""
        upstream = exchange.session.upstream
        try:
            await upstream.connect()
            left_out: tuple[bytes, ...] = (*_OWN_FIELDS, b"client")
            if speculates_with_certificate(command):
                left_out += (b"speculativeAuthenticate",)
            elif b"speculativeAuthenticate" in command.fields:
                upstream.is_bound = True
            body = command.without(*left_out)
            answer = await upstream.exchange(op_msg.build(1, 0, _with_database(body, command)))
            said = bson.decode(reply_document(answer), codec_options=TOLERANT)
            if not said.get("ok"):
                exchange.end(Replied(reply_document(answer)))
                return
            carried = {name.decode(): said[name.decode()] for name in _LOGIN_FIELDS if name.decode() in said}
            if "speculativeAuthenticate" in carried:
                await learn_identity(exchange.session, {"ok": 1, **carried["speculativeAuthenticate"]})
            exchange.end(Replied(self.document(exchange, carried)))
        except CommandError as error:
            exchange.end(Refused(error))

    def document(self, exchange: Exchange, carried: Mapping[str, Any]) -> bytes:
        """The reply to this hello; records the negotiated compressors."""
        command, session = exchange.command, exchange.session
        assert command is not None
        self._agree(session, command)
        return encode(
            describe(
                self._backend.hello,
                command,
                version=self._version,
                connection_id=session.connection_id,
                local_time=datetime.now(UTC),
                compressors=session.compressors or None,
                carried=carried,
            )
        )


def _greeting(command: Command) -> bytes:
    """The hello with which the client's own connection to the backend begins.

    It contains only the client's metadata, because it is kept while the client is connected.
    """
    metadata = command.raw(b"client")
    said = element(b"client", _OBJECT + without_our_name(metadata)) if metadata else b""
    return document((_HELLO, said, _ADMIN))


def _with_database(body: bytes, command: Command) -> bytes:
    """The body with ``$db``: an OP_QUERY has the database outside of its command."""
    if b"$db" in command.fields:
        return body
    name = command.namespace.database.encode()
    tail = b"\x02$db\0" + (len(name) + 1).to_bytes(4, "little") + name + b"\0\0"
    return (len(body) - 1 + len(tail)).to_bytes(4, "little") + body[4:-1] + tail


def _keep_little(exchange: Exchange, command: Command) -> None:
    """Keep only the parts of a message that the replies need, because the client may wait for any time."""
    message = exchange.message
    head = Message(
        message.raw[: op_msg.BODY_AT], message.request_id, message.response_to, message.opcode, message.compressor
    )
    body = document((_HELLO_OK,) if command.get("helloOk") else ())
    exchange.message = head
    exchange.command = Command(command.name, command.namespace, body, top_level(body), head)


class _Watch:
    """A waiting hello; with ``streaming``, replies are sent repeatedly until the client disconnects."""

    __slots__ = ("_exchange", "_handler", "_period_ms", "_response_to", "_streaming", "_timer")

    def __init__(self, handler: HelloHandler, exchange: Exchange, *, streaming: bool) -> None:
        assert exchange.command is not None
        self._handler = handler
        self._exchange = exchange
        period_ms = whole_number(exchange.command.get("maxAwaitTimeMS"))
        self._period_ms = min(max(period_ms, SHORTEST_PERIOD_MS), LONGEST_WAIT_MS)
        self._streaming = streaming
        self._response_to = exchange.message.request_id
        self._timer: asyncio.TimerHandle | None = None
        _keep_little(exchange, exchange.command)

    @property
    def session(self) -> Session:
        """The session of the client."""
        return self._exchange.session

    def wait(self, first_ms: int) -> None:
        """Wait, first for ``first_ms``."""
        self._handler.waiting.add(self)
        self._exchange.on_abandon = self._stop
        self._timer = asyncio.get_running_loop().call_later(min(first_ms, LONGEST_WAIT_MS) / 1000, self.fire)

    def stop(self) -> None:
        """End the wait and the connection."""
        self._stop()
        self._exchange.close()

    def fire(self) -> None:
        """Reply now."""
        self._stop()
        client = self._exchange.client
        if self._streaming and client.unsent_bytes:
            # The client has not read the previous reply: it gets the next one after that.
            self.wait(self._period_ms)
            return
        document = self._handler.document(self._exchange, {})
        if not self._streaming:
            self._exchange.end(Replied(document))
            return
        raw = self._exchange.frame(document, op_msg.MORE_TO_COME, self._response_to)
        self._response_to = HEADER.unpack_from(raw)[1]
        client.write(raw)
        self.wait(self._period_ms)

    def _stop(self) -> None:
        self._handler.waiting.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
