"""How the proxy presents itself.

In front of a replica set or a sharded cluster it is a mongos (``msg: "isdbgrid"``), so that clients never learn the
backend's addresses; otherwise a standalone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bson import ObjectId
from bson.int64 import Int64

from catalog.errors import CommandError
from proxy.request.command import Command
from proxy.request.session_fields import GOSSIP
from proxy.wire.op_compressed import COMPRESSOR_IDS

MAX_WIRE_VERSION: Final = 21
"""The newest wire version whose commands this proxy knows how to route (7.0)."""

CARRIED_FIELDS: Final = frozenset(
    (b"saslSupportedMechs", b"speculativeAuthenticate", b"apiVersion", b"apiStrict", b"apiDeprecationErrors")
)
"""A hello with any of these is also put to the backend: logins and API rules are its own business.

Fields that nobody knows (drivers announce what they can) are ignored, as by servers.
"""


@dataclass(frozen=True, slots=True)
class TopologyVersion:
    """This process and how often its answer changed."""

    process_id: ObjectId
    counter: int = 0

    def document(self) -> dict[str, Any]:
        """As hello shows it."""
        return {"processId": self.process_id, "counter": Int64(self.counter)}


def negotiate(wanted: object, offered: Sequence[str]) -> tuple[str, ...]:
    """The compressors both sides know, in the client's order; raises ``CommandError`` for a bad list."""
    if wanted is None:
        return ()
    if not isinstance(wanted, list):
        raise CommandError(14, "BSON field 'hello.compression' is the wrong type, expected type 'array'")
    return tuple(name for name in wanted if isinstance(name, str) and name in offered and name in COMPRESSOR_IDS)


def await_time_ms(command: Command, current: TopologyVersion) -> int | None:
    """How long to wait for a change; 0 when the client knows an older state, ``None`` when it does not wait.

    Raises ``CommandError`` as 6.0.5 does.
    """
    version, time_ms = command.get("topologyVersion"), command.get("maxAwaitTimeMS")
    if version is None and time_ms is None:
        if command.exhaust_allowed:
            raise CommandError(51756, "An isMaster or hello request with exhaust must specify 'maxAwaitTimeMS'")
        return None
    if version is None:
        raise CommandError(31368, "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'")
    if time_ms is None:
        raise CommandError(31368, "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'")
    if not isinstance(version, dict):
        raise CommandError(14, "BSON field 'hello.topologyVersion' is the wrong type, expected type 'object'")
    for name in ("processId", "counter"):
        if name not in version:
            raise CommandError(40414, f"BSON field 'hello.topologyVersion.{name}' is missing but a required field")
    if not isinstance(time_ms, (int, float)) or isinstance(time_ms, bool):
        raise CommandError(14, "BSON field 'hello.maxAwaitTimeMS' is the wrong type, expected a number")
    if time_ms < 0:
        raise CommandError(51024, f"BSON field 'maxAwaitTimeMS' value must be >= 0, actual value '{int(time_ms)}'")
    if version["processId"] != current.process_id:
        return 0
    return _known_counter(version["counter"], current.counter, int(time_ms))


def _known_counter(counter: object, current: int, time_ms: int) -> int:
    if not isinstance(counter, int) or counter < 0:
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

    ``backend`` is its own hello; ``compressors`` is ``None`` when none were agreed on; ``carried`` are
    ``saslSupportedMechs`` and ``speculativeAuthenticate`` as the backend answered them to this client.
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
