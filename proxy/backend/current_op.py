"""Who uses the backend besides this process, as the backend's ``$currentOp`` shows it.

Rows that are stored in parts are joined when nobody reads them (``catalog.joining``). Readers that come through this
process are known (``proxy.readers.register``); those that go past it, to the backend itself or through another process
of the proxy, are asked for here. Connections of a tsproxy bear its name and a number that is the process's own.

https://www.mongodb.com/docs/v6.0/reference/operator/aggregation/currentOp/
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from bson.regex import Regex

from catalog.bson.codec import decode, encode
from catalog.errors import CommandError
from catalog.namespaces import BUCKETS_PREFIX
from proxy.backend.service import ServicePool

PROGRAM: Final = "tsproxy"
PATIENCE_SECONDS: Final = 2.0

READS: Final = ("aggregate", "count", "distinct", "explain", "find", "geoSearch", "mapReduce", "validate")
"""Commands that may read buckets, also of other collections: a view, or a stage of a pipeline."""
WRITES: Final = ("delete", "findAndModify", "update")
"""Commands that look for what they change; on the buckets or their view only."""

_BUCKETS: Final = re.escape(BUCKETS_PREFIX)


def process_name() -> str:
    """A name for this process's connections."""
    return f"{PROGRAM} {secrets.token_hex(6)}"


class CurrentOperations:
    """Asks for them over a service connection, whose account needs ``inprog`` where access control is on."""

    def __init__(self, pool: ServicePool, own_name: str) -> None:
        self._pool = pool
        self._own_name = own_name

    async def read(self, database: str, *, or_are_proxies: bool = False) -> bool:
        """Whether one of them reads this database, or has a cursor open there; also when that cannot be found out.

        ``or_are_proxies``: or another process of the proxy is connected.
        """
        try:
            return await self._any(_readers_of(database, self._own_name, or_are_proxies))
        except CommandError:
            return True

    async def are_proxies(self) -> bool:
        """Whether other processes of the proxy are connected; raises ``CommandError``."""
        return await self._any(_proxies_but(self._own_name))

    async def _any(self, command: bytes) -> bool:
        deadline_seconds = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        reply = decode(await self._pool.request(command, deadline_seconds))
        if not reply.get("ok"):
            raise CommandError(int(reply.get("code", 1)), str(reply.get("errmsg", "")))
        return bool(reply["cursor"]["firstBatch"])


def _current_operations(options: Mapping[str, Any], condition: Mapping[str, Any]) -> bytes:
    """Whether there is any such operation."""
    pipeline = [
        {"$currentOp": {"allUsers": True, **options}},
        {"$match": condition},
        {"$limit": 1},
        {"$project": {"type": 1}},
    ]
    return encode({"aggregate": 1, "pipeline": pipeline, "cursor": {}, "$db": "admin"})


@lru_cache(maxsize=256)
def _readers_of(database: str, own_name: str, or_proxies: bool) -> bytes:
    inside = re.escape(database) + r"\."
    reads = [{f"command.{name}": {"$exists": True}} for name in READS]
    writes = [{f"command.{name}": {"$exists": True}} for name in WRITES]
    kinds = [
        {"type": "idleCursor"},
        {"op": "getmore"},
        {"$or": reads},
        {"ns": Regex(f"^{inside}{_BUCKETS}"), "$or": writes},
        {"ns": Regex(f"^{inside}{_BUCKETS}"), "op": {"$in": ["update", "remove"]}},
    ]
    # Change streams and tailable cursors are open for ever and read no buckets.
    ends = {"cursor.tailable": {"$ne": True}, "cursor.originatingCommand.pipeline.0.$changeStream": {"$exists": False}}
    others = {"appName": {"$ne": own_name}, "ns": Regex(f"^{inside}")}
    readers: dict[str, Any] = {**others, **ends, "$or": kinds}
    # A driver's connection that watches the server is busy all the time.
    condition = {"$or": [readers, _named(own_name)]} if or_proxies else readers
    return _current_operations({"idleCursors": True}, condition)


def _proxies_but(own_name: str) -> bytes:
    return _current_operations({"idleConnections": True}, _named(own_name))


def _named(own_name: str) -> dict[str, Any]:
    return {"appName": {"$regex": f"^{PROGRAM}( |$)", "$ne": own_name}}
