"""Commands on ordinary collections whose way is known from an earlier one: relayed without being parsed.

Most of what passes a proxy are the same few commands on the same collections. Where such a command goes depends on its
name, its collection and its database alone, as long as the collection is no time-series collection; so these bytes are
recognised, and the rest of the message is the backend's to judge. Whatever is not recognised takes the ordinary way.
"""

from __future__ import annotations

from typing import Final

from catalog.bounded import BoundedCache
from catalog.errors import BackendUnavailable
from catalog.namespaces import Namespace
from proxy.request import router
from proxy.request.attempt import Unreachable
from proxy.request.command import Command
from proxy.request.command_table import REDEFINES, TABLE, Target
from proxy.request.exchange import Attempts, Client, Exchange, Meter, Reader
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

    __slots__ = ("avoid", "meter", "namespace", "reader")

    def __init__(self, namespace: Namespace, meter: Meter, avoid: bytes, reader: Reader | None) -> None:
        """A message with ``avoid`` in it is another case."""
        self.namespace = namespace
        self.meter = meter
        self.avoid = avoid
        self.reader = reader


class PlainRelays:
    """The commands that are recognised, and their way."""

    def __init__(
        self,
        lookup: router.Lookup,
        readers: Readers | None,
        *,
        prefers_members: bool,
        limit_bytes: int = REMEMBERED_BYTES,
    ) -> None:
        """``prefers_members``: reads with a read preference may go elsewhere than to the client's own connection."""
        self._lookup = lookup
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
        reader = None if self._readers is None else self._readers.of_relayed(command)
        self._known.put(key, PlainRoute(command.namespace, meter, avoid, reader))

    def start(self, session: Session, message: Message, client: Client, attempts: Attempts) -> Exchange | None:
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
        reader = route.reader
        if reader is not None and reader.is_kept_out:
            return None
        exchange = Exchange(session, client, message, attempts)
        exchange.meter = route.meter
        if reader is not None:
            exchange.enter(reader)
        try:
            connection.stream(raw, exchange)
        except BackendUnavailable as error:
            exchange.end(Unreachable(error))
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
