"""Builds the reply to ``hello``, in which the proxy presents itself.

With a replica set or a sharded cluster, it presents itself as a mongos (``msg: "isdbgrid"``), so that clients never
learn the backend's addresses; otherwise as a standalone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bson import Decimal128, ObjectId
from bson.int64 import Int64

from catalog.errors import CommandError
from proxy.request.command import Command
from proxy.request.session_fields import GOSSIP
from proxy.wire.framing import ARRAY, BOOL, DOCUMENT, STRING, TYPE_NAMES, Element, top_level
from proxy.wire.op_compressed import COMPRESSOR_IDS

MAX_WIRE_VERSION: Final = 21
"""The newest wire version whose commands the proxy can route (7.0)."""

CARRIED_FIELDS: Final = frozenset(
    (b"saslSupportedMechs", b"speculativeAuthenticate", b"apiVersion", b"apiStrict", b"apiDeprecationErrors")
)
"""A hello with any of these fields is also sent to the backend, which handles logins and API versions.

Unknown fields, with which drivers announce capabilities, are ignored, as by servers.
"""


@dataclass(frozen=True, slots=True)
class TopologyVersion:
    """The topology version: the id of this process, and a counter that never changes."""

    process_id: ObjectId
    counter: int = 0

    def document(self) -> dict[str, Any]:
        """The document in the reply to hello."""
        return {"processId": self.process_id, "counter": Int64(self.counter)}


def negotiate(wanted: object, offered: Sequence[str]) -> tuple[str, ...]:
    """The compressors that both sides support, each once, in the client's order; ``wanted`` may have any values."""
    if not isinstance(wanted, list):
        return ()
    known = (name for name in wanted if isinstance(name, str) and name in offered and name in COMPRESSOR_IDS)
    return tuple(dict.fromkeys(known))


_ABSENT: Final = frozenset({0x06, 0x0A})
"""Undefined and null count as a missing field."""
_NUMBERS: Final = frozenset({0x01, 0x10, 0x12, 0x13})
_FLAGS: Final = _NUMBERS | {BOOL}

_TYPES: Final[Mapping[bytes, tuple[frozenset[int], str]]] = {
    b"helloOk": (_FLAGS, "types '[bool, long, int, decimal, double']"),
    b"forShell": (_FLAGS, "types '[bool, long, int, decimal, double']"),
    b"hostInfo": (frozenset({STRING}), "type 'string'"),
    b"internalClient": (frozenset({DOCUMENT}), "type 'object'"),
    b"loadBalanced": (frozenset({BOOL}), "type 'bool'"),
    b"topologyVersion": (frozenset({DOCUMENT}), "type 'object'"),
    b"maxAwaitTimeMS": (_NUMBERS, "types '[long, int, decimal, double']"),
}
"""Fields that only the proxy reads. The backend checks those that are sent to it."""
_MOST_VERSION_BYTES: Final = 1_000
_MOST_INTERNAL_BYTES: Final = 1_000
"""Larger ones have fields that no server accepts."""
_VERSION_TYPES: Final = ((b"processId", 0x07, "objectId"), (b"counter", 0x12, "long"))


def check_types(command: Command) -> None:
    """Raise ``CommandError`` for a field with a type that servers refuse, with their error."""
    for name, (kinds, expected) in _TYPES.items():
        kind = command.fields.get(name, (0x0A,))[0]
        if kind not in kinds and kind not in _ABSENT:
            raise _wrong_type(command, name.decode(), kind, expected)
    compression = command.fields.get(b"compression")
    if compression is not None and compression[0] != ARRAY:
        if compression[0] in _ABSENT:
            raise CommandError(10065, "invalid parameter: expected an object (compression)")
        raise _wrong_type(command, "compression", compression[0], "type 'array'")
    internal = command.fields.get(b"internalClient")
    if internal is not None and internal[0] == DOCUMENT:
        if internal[2] - internal[1] > _MOST_INTERNAL_BYTES:
            raise CommandError(40415, f"BSON field '{command.name}.internalClient' has unknown fields")
        if "maxWireVersion" not in command.get("internalClient"):
            raise _missing(command, "internalClient.maxWireVersion")


def _wrong_type(command: Command, name: str, kind: int, expected: str) -> CommandError:
    is_now = TYPE_NAMES.get(kind, str(kind))
    return CommandError(14, f"BSON field '{command.name}.{name}' is the wrong type '{is_now}', expected {expected}")


def _missing(command: Command, name: str) -> CommandError:
    return CommandError(40414, f"BSON field '{command.name}.{name}' is missing but a required field")


def await_time_ms(command: Command, current: TopologyVersion) -> int | None:
    """How long to wait for a change; 0 if the client knows another state, ``None`` if it does not wait.

    Raises ``CommandError`` as 6.0.5 does. ``check_types`` must be called before.
    """
    version, time = (_given(command, name) for name in (b"topologyVersion", b"maxAwaitTimeMS"))
    if version is None and time is None:
        if command.exhaust_allowed:
            raise CommandError(51756, "An isMaster or hello request with exhaust must specify 'maxAwaitTimeMS'")
        return None
    if version is None:
        raise CommandError(31368, "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'")
    if time is None:
        raise CommandError(31368, "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'")
    if version[2] - version[1] > _MOST_VERSION_BYTES:
        raise CommandError(40415, f"BSON field '{command.name}.topologyVersion' has unknown fields")
    inside = top_level(command.body[version[1] : version[2]])
    for name, kind, expected in _VERSION_TYPES:
        given = inside.get(name, (0x0A, 0, 0))[0]
        if given in _ABSENT:
            raise _missing(command, f"topologyVersion.{name.decode()}")
        if given != kind:
            raise _wrong_type(command, f"topologyVersion.{name.decode()}", given, f"type '{expected}'")
    time_ms = whole_number(command.get("maxAwaitTimeMS"))
    if time_ms < 0:
        raise CommandError(51024, f"BSON field 'maxAwaitTimeMS' value must be >= 0, actual value '{time_ms}'")
    known = command.get("topologyVersion")
    if known["processId"] != current.process_id:
        return 0
    return _known_counter(known["counter"], current.counter, time_ms)


def _given(command: Command, name: bytes) -> Element | None:
    element = command.fields.get(name)
    return None if element is None or element[0] in _ABSENT else element


def whole_number(value: object) -> int:
    """A number of any type as servers convert it to an integer: truncated, within 64 bits, NaN is 0."""
    if isinstance(value, Decimal128):
        value = float(value.to_decimal())
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        return int(min(max(value, -(2.0**63)), 2.0**63 - 1024)) if math.isfinite(value) else _GREATEST[value > 0]
    return value if isinstance(value, int) else 0


_GREATEST: Final = (-(1 << 63), (1 << 63) - 1)


def _known_counter(counter: int, current: int, time_ms: int) -> int:
    if counter < 0:
        raise CommandError(31372, "topologyVersion must have a non-negative counter")
    if counter > current:
        raise CommandError(
            51764,
            f"Received a topology version with counter: {counter} which is greater than the "
            f"server topology version counter: {current}",
        )
    return time_ms if counter == current else 0


def describe(
    backend: Mapping[str, Any],
    command: Command,
    *,
    version: TopologyVersion,
    connection_id: int,
    local_time: object,
    compressors: Sequence[str] | None,
    carried: Mapping[str, Any],
) -> dict[str, Any]:
    """The reply to hello, in the server's field order.

    ``backend``: the backend's own reply; ``compressors``: ``None`` if none were negotiated; ``carried``:
    ``saslSupportedMechs`` and ``speculativeAuthenticate`` from the backend's reply to this client.
    """
    is_cluster = "setName" in backend or backend.get("msg") == "isdbgrid"
    reply: dict[str, Any] = {}
    if command.get("helloOk"):
        reply["helloOk"] = True
    reply["isWritablePrimary" if command.name == "hello" else "ismaster"] = True
    if is_cluster:
        reply["msg"] = "isdbgrid"
    reply["topologyVersion"] = version.document()
    for name in ("maxBsonObjectSize", "maxMessageSizeBytes", "maxWriteBatchSize"):
        reply[name] = backend[name]
    reply["localTime"] = local_time
    reply["logicalSessionTimeoutMinutes"] = backend.get("logicalSessionTimeoutMinutes", 30)
    reply["connectionId"] = connection_id
    reply["minWireVersion"] = backend.get("minWireVersion", 0)
    reply["maxWireVersion"] = min(int(backend["maxWireVersion"]), MAX_WIRE_VERSION)
    if not is_cluster:
        reply["readOnly"] = backend.get("readOnly", False)
    if compressors is not None:
        reply["compression"] = list(compressors)
    gossip = {name: backend[name] for name in GOSSIP if name in backend}
    return {**reply, **carried, "ok": 1.0, **gossip}
