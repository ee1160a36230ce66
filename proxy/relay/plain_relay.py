"""Commands on ordinary collections whose way is known from an earlier one: relayed without being parsed.

Most of what passes a proxy are the same few commands on the same collections. Where such a command goes depends on its
name, its collection and its database alone, as long as the collection is no time-series collection; so these bytes are
recognised, and the rest of the message is the backend's to judge. Whatever is not recognised takes the ordinary way.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

from catalog.bounded import BoundedCache
from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import Namespace
from proxy.relay.handler import RelayHandler
from proxy.request import router
from proxy.request.command import Command, parse_command
from proxy.request.command_table import REDEFINES, TABLE, Target
from proxy.request.exchange import TAIL_BYTES, Client, Exchange, Meter
from proxy.request.ports import Readers
from proxy.request.session import Session
from proxy.wire.message import LENGTH, Message
from proxy.wire.op_msg import BODY_AT

REMEMBERED_BYTES: Final = 8 << 20
"""For all of them together; about 8,000."""
LONGEST_KEY_BYTES: Final = 512
"""No collection has a name so long."""
LONGEST_BYTES: Final = 64 * 1024
"""Longer messages gain nothing from not being parsed."""

_NO_FLAGS_AND_A_BODY: Final = bytes(5)
_KIND_AT: Final = BODY_AT + 4
_STRING: Final = 2
_DATABASE: Final = b"\x02$db\0"
_CHANGES_WHO_READS: Final = {"aggregate": b"$changeStream\0", "find": b"tailable\0"}
"""What makes the reply of a reading command one that never ends (``proxy.readers.register``)."""
_PREFERENCE: Final = b"$readPreference\0"


class PlainRoute:
    """What is known of a command from its name, collection and database."""

    __slots__ = ("avoid", "is_reader", "leaves_cursor", "meter", "namespace")

    def __init__(
        self, namespace: Namespace, meter: Meter, avoid: bytes, *, is_reader: bool, leaves_cursor: bool
    ) -> None:
        """A message with ``avoid`` in it is another case."""
        self.namespace = namespace
        self.meter = meter
        self.avoid = avoid
        self.is_reader = is_reader
        self.leaves_cursor = leaves_cursor


class PlainRelays:
    """The commands that are recognised, and their way."""

    def __init__(
        self,
        lookup: router.Lookup,
        relay: RelayHandler,
        readers: Readers | None,
        *,
        prefers_members: bool,
        limit_bytes: int = REMEMBERED_BYTES,
    ) -> None:
        """``prefers_members``: reads with a read preference may go elsewhere than to the client's own connection."""
        self._lookup = lookup
        self._relay = relay
        self._readers = readers
        self._prefers_members = prefers_members
        self._known: BoundedCache[bytes, PlainRoute] = BoundedCache(limit_bytes, _weight)

    def remember(self, command: Command, route: router.Route, meter: Meter) -> None:
        """``command`` took this route, and was counted by this meter."""
        row = TABLE.get(command.name)
        if route is not router.RELAY or row is None or row.target is not Target.FIRST or command.name in REDEFINES:
            return
        avoid = _CHANGES_WHO_READS.get(command.name, b"") if self._readers is not None else b""
        raw = command.message.raw
        key = _key(raw)
        if key is None or self._lookup(command.namespace) is not None or (avoid and avoid in raw):
            return
        is_reader = self._readers is not None and self._readers.counts(command)
        route_of_all = PlainRoute(
            command.namespace,
            meter,
            avoid,
            is_reader=is_reader,
            leaves_cursor=is_reader and self._readers is not None and self._readers.leaves_cursor(command),
        )
        self._known.put(key, route_of_all)

    def start(self, session: Session, message: Message, client: Client) -> Exchange | None:
        """Relay the message if it is recognised; ``None`` when it is not, and nothing was done."""
        raw = message.raw
        key = _key(raw)
        if key is None:
            return None
        route = self._known.get(key)
        if (
            route is None
            or self._lookup(route.namespace) is not None
            or (route.avoid and route.avoid in raw)
            or (self._prefers_members and _PREFERENCE in raw)
        ):
            return None
        connection = session.upstream.ready
        if connection is None:
            return None
        if route.is_reader:
            assert self._readers is not None
            database = route.namespace.database
            if self._readers.keeps_out(database):
                return None
            self._readers.enter(database)
        exchange = PlainRelay(session, message, client, route, self._relay, self._readers)
        try:
            connection.stream(raw, exchange)
        except BackendUnavailable as error:
            exchange.refuse(error)
        return exchange


def _weight(key: bytes, route: PlainRoute) -> int:
    return 3 * len(key) + 400


def _key(raw: bytes) -> bytes | None:
    """What tells where a plain command goes: its first element and its database.

    ``$db`` may stand anywhere in the body, but a message in which these bytes stand once has no other.
    """
    if raw[BODY_AT - 5 : BODY_AT] != _NO_FLAGS_AND_A_BODY or not BODY_AT + 16 < len(raw) <= LONGEST_BYTES:
        return None
    first_value = raw.find(0, _KIND_AT + 1) + 1
    body_end = BODY_AT + LENGTH.unpack_from(raw, BODY_AT)[0]
    if raw[_KIND_AT] != _STRING or first_value == 0 or first_value + 4 > body_end or body_end > len(raw):
        return None
    first_end = first_value + 4 + LENGTH.unpack_from(raw, first_value)[0]
    at = raw.find(_DATABASE, first_end, body_end)
    if at < 0 or first_end < first_value or raw.find(_DATABASE, at + 5, body_end) >= 0 or at + 9 > body_end:
        return None
    end = at + 9 + LENGTH.unpack_from(raw, at + 5)[0]
    if first_end + end - at - _KIND_AT > LONGEST_KEY_BYTES:
        return None
    return raw[_KIND_AT:first_end] + raw[at:end]


class PlainRelay(Exchange):
    """A relayed command with nothing but its reply to wait for; what goes wrong is left to an ordinary exchange."""

    __slots__ = ("_is_over", "_readers", "_relay", "_route", "_whole")

    def __init__(
        self,
        session: Session,
        message: Message,
        client: Client,
        route: PlainRoute,
        relay: RelayHandler,
        readers: Readers | None,
    ) -> None:
        """Only what the usual end needs is set; ``_ordinary`` sets the rest."""
        self.session = session
        self.message = message
        self.client = client
        self.started_seconds = time.perf_counter()
        self.tail = b""
        self._route = route
        self._relay = relay
        self._readers = readers
        self._is_over = False
        self._whole: Exchange | None = None

    def whole(self, reply: bytes) -> None:
        """See ``Sink``."""
        client = self.client
        client.write(reply)
        self.tail = reply
        self._end()
        client.finish()

    def write(self, data: bytes) -> None:
        """See ``Sink``."""
        if self._route.leaves_cursor:
            self.tail = ((self.tail or b"") + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        self.client.write(data)

    def done(self) -> None:
        """See ``Sink``."""
        self._end()
        self.client.finish()

    def deposed(self, reply: bytes) -> bool:
        """See ``Sink``."""
        return self._ordinary().deposed(reply)

    def failed(self, error: BackendUnavailable, partly_sent: bool) -> None:
        """See ``Sink``."""
        self._ordinary().failed(error, partly_sent)

    def refuse(self, error: CommandError) -> None:
        """Answer with an error."""
        self._ordinary().refuse(error)

    def abandon(self) -> None:
        """The client is gone."""
        if self._whole is not None:
            self._whole.abandon()
        else:
            self._leave()

    def _end(self) -> None:
        route = self._route
        route.meter.done(time.perf_counter() - self.started_seconds)
        if route.is_reader:
            self._leave()

    def _leave(self) -> None:
        route, readers = self._route, self._readers
        if self._is_over or readers is None or not route.is_reader:
            return
        self._is_over = True
        if route.leaves_cursor and self.tail:
            readers.left_cursor(route.namespace, self.tail)
        readers.leave(route.namespace.database)

    def _ordinary(self) -> Exchange:
        """The same command with everything that an exchange may need."""
        exchange = self._whole = Exchange(self.session, self.client, self.message, expects_reply=True)
        with suppress(CommandError):
            exchange.command = parse_command(self.message)
        exchange.meter = self._route.meter
        exchange.started_seconds = self.started_seconds
        exchange.on_leave = self._leave
        self._relay.may_go_elsewhere(exchange, router.RELAY)
        return exchange
