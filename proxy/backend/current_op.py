"""Detects other users of the backend with ``$currentOp``.

Parts are joined when there are no readers (``catalog.background.joining``). Readers through this process are known
(``proxy.readers.register``); this module detects those that bypass it, directly or through another proxy. Connections
of a tsproxy have its name, with a number that is unique for the process.

A name alone proves nothing. With access control, only connections with the proxy's own user count as those of a proxy,
so all proxies of a backend need the same account. Without it, the name of a direct connection is trusted; clients of a
proxy cannot use such a name (``proxy.request.client_metadata``).

https://www.mongodb.com/docs/v6.0/reference/operator/aggregation/currentOp/
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Any, Final, NamedTuple

from bson.errors import InvalidBSON
from bson.regex import Regex

from catalog.bson.codec import decode, encode
from catalog.errors import UNAUTHORIZED, CommandError
from catalog.identity import User
from catalog.namespaces import BUCKETS_PREFIX
from proxy.backend.fences import Fences
from proxy.backend.service import ServicePool
from proxy.request.client_metadata import OWN_PROGRAM
from proxy.request.command_table import READS_BUCKETS, SEEKING_WRITES

PROGRAM: Final = OWN_PROGRAM.decode()
PATIENCE_SECONDS: Final = 2.0
MOST_PROXIES: Final = 100
MOST_IDLE_SECONDS: Final = 5.0
"""A transaction of another process that has been idle for longer is ended. Those of joins are committed at once."""
MOST_ENDED: Final = 100
"""Maximum number of transactions that are ended at once."""
MAY_NOT_ASK: Final = "the backend's account lacks the privilege inprog on the cluster"

_UNIX_SOCKET: Final = "anonymous unix socket"
"""How a server shows the host of a connection through one."""

_BUCKETS: Final = re.escape(BUCKETS_PREFIX)


class Own(NamedTuple):
    """The name and the user of this process's connections, which distinguish them from others."""

    name: str
    account: User | None


class Proxy(NamedTuple):
    """Another process of the proxy, as the backend sees it.

    ``address``: the host of one of its connections; ``version``: ``""`` if it has not told its version; ``port``: of
    its listener for other proxies, 0 if it has not told it, ``has_tls``: whether that has TLS, and ``is_local``:
    whether it serves clients on its own machine only.
    """

    name: str
    address: str
    version: str
    connections: int
    port: int = 0
    has_tls: bool = False
    is_local: bool = False


class Activity(NamedTuple):
    """What a process does at the backend: whether it has a connection, and the numbers of its operations."""

    is_connected: bool
    operations: frozenset[str] = frozenset()


def process_name() -> str:
    """A unique name for the connections of this process."""
    return f"{PROGRAM} {secrets.token_hex(6)}"


def account_of(status: bytes) -> User | None:
    """The user in a raw reply to ``connectionStatus``; ``None`` if there is none."""
    users = decode(status).get("authInfo", {}).get("authenticatedUsers", ())
    return User(str(users[0]["user"]), str(users[0]["db"])) if users else None


class CurrentOperations:
    """Runs ``$currentOp`` over a service connection.

    With access control, its account needs ``inprog`` to see what other users do. Other proxies have the same user, so
    they are seen without it.
    """

    def __init__(
        self, pool: ServicePool, own_name: str, account: User | None = None, fences: Fences | None = None
    ) -> None:
        """``account``: the user that this process authenticated as; ``None`` where there is none.

        With access control, a connection counts as that of a proxy only if it also has that user. ``fences``: where
        writes have numbers.
        """
        self._fences = fences
        self._pool = pool
        self._own = Own(own_name, account)

    async def read(self, database: str, *, or_are_proxies: bool = False, but: AbstractSet[str] = frozenset()) -> bool:
        """Whether another connection reads this database or has a cursor open there; also true if that is unknown.

        ``or_are_proxies``: also true if another proxy is connected. ``but``: names of proxies that do not count.
        """
        try:
            return await self._any(_readers_of(database, self._own, or_are_proxies, tuple(sorted(but))))
        except CommandError:
            return True

    async def count_proxies(self) -> int:
        """The number of other processes of the proxy, at most ``MOST_PROXIES``; raises ``CommandError``."""
        return len(await self.proxies())

    @property
    def own_name(self) -> str:
        """The name of this process's connections."""
        return self._own.name

    async def proxies(self) -> list[Proxy]:
        """The other processes of the proxy by name, at most ``MOST_PROXIES``; raises ``CommandError``."""
        found = await self._ask(_all_proxies_but(self._own))
        return [
            Proxy(
                each["_id"],
                _host_of(str(each["client"] or "")),
                each["version"] or "",
                each["connections"],
                *listener_in(str(each["platform"] or "")),
            )
            for each in found
        ]

    async def activity(self, name: str) -> Activity:
        """What another process does at the moment; raises ``CommandError``."""
        found = await self._ask(_activity_of(name, self._own))
        if not found:
            return Activity(is_connected=False)
        return Activity(True, frozenset(str(each) for each in found[0]["operations"] if each is not None))

    async def fence(self, name: str) -> bool:
        """What another process has sent until now is not executed later, if this is true; raises ``CommandError``."""
        if self._fences is None:
            return False
        try:
            await self._fences.set_up(name)
        except CommandError as error:
            if error.code != UNAUTHORIZED:
                raise
            return False
        return True

    async def meets_fences(self) -> bool:
        """Whether others have set up fences that this process has not known of; raises ``CommandError``."""
        try:
            return self._fences is not None and await self._fences.meets_others()
        except CommandError as error:
            if error.code != UNAUTHORIZED:
                raise
            return False

    async def executes(self, sessions: Sequence[bytes]) -> bool:
        """Whether the backend executes a command of one of these sessions, raw; raises ``CommandError``."""
        ids = [each for session in sessions if (each := _id_of(session)) is not None]
        condition = {"active": True, "lsid.id": {"$in": ids}}
        try:
            return await self._any(_current_operations({}, condition))
        except CommandError as error:
            if error.code != UNAUTHORIZED or self._own.account is None:
                raise
            # Then only what proxies execute with their account can be seen, not what they relay for clients.
            return await self._any(_current_operations(_OWN_USER, condition))

    async def end_idle_transactions(self, least_seconds: float = MOST_IDLE_SECONDS) -> int:
        """End the transactions with which other processes do not go on; returns how many, raises ``CommandError``.

        A process that was killed or stopped while it joined parts leaves one open. It keeps its locks until the server
        ends it, by default after a minute, and each command that changes the collection meanwhile stops its writers.
        """
        idle = await self._ask(_idle_transactions_but(self._own, least_seconds))
        if idle:
            # Only sessions of this process's own account are ended by their ids.
            command = encode({"killSessions": [{"id": each["_id"]} for each in idle], "$db": "admin"})
            await self._reply(command)
        return len(idle)

    async def _any(self, command: bytes) -> bool:
        return bool(await self._ask(command))

    async def _ask(self, command: bytes) -> list[Any]:
        return list((await self._reply(command))["cursor"]["firstBatch"])

    async def _reply(self, command: bytes) -> Mapping[str, Any]:
        deadline_seconds = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        reply = decode(await self._pool.request(command, deadline_seconds))
        if not reply.get("ok"):
            code = int(reply.get("code", 1))
            # Then the server's message is the whole command.
            message = MAY_NOT_ASK if code == UNAUTHORIZED else str(reply.get("errmsg", ""))
            raise CommandError(code, message)
        return reply


def _id_of(session: bytes) -> Any:
    try:
        return decode(session).get("id")
    except InvalidBSON:
        return None


def _host_of(client: str) -> str:
    """The host of a connection, as the backend shows it; that of this machine if it is a Unix socket."""
    host = client.rpartition(":")[0].strip("[]")
    return "127.0.0.1" if host == _UNIX_SOCKET else host


def listener_text(port: int, *, has_tls: bool, is_local: bool) -> str:
    """What connections tell the backend of the listener for other proxies, as ``platform`` of the client metadata."""
    return f"peers {port}{' tls' if has_tls else ''}{' local' if is_local else ''}"


def listener_in(text: str) -> tuple[int, bool, bool]:
    """What ``listener_text`` was told; port 0 for another text."""
    found = re.fullmatch(r"peers (\d{1,5})( tls)?( local)?", text)
    return (int(found[1]), bool(found[2]), bool(found[3])) if found else (0, False, False)


_ANY: Final = ({"$limit": 1}, {"$project": {"type": 1}})
_OWN_VERSION: Final = {
    "$cond": [{"$eq": ["$clientMetadata.driver.name", PROGRAM]}, "$clientMetadata.driver.version", None]
}
_OWN_PLATFORM: Final = {"$cond": [{"$eq": ["$clientMetadata.driver.name", PROGRAM]}, "$clientMetadata.platform", None]}
_PROXIES: Final = (
    {
        "$group": {
            "_id": "$appName",
            "client": {"$first": "$client"},
            # Connections of the driver tell the driver's version.
            "version": {"$max": _OWN_VERSION},
            "platform": {"$max": _OWN_PLATFORM},
            "connections": {"$sum": 1},
        }
    },
    {"$sort": {"_id": 1}},
    {"$limit": MOST_PROXIES},
)


_OWN_USER: Final = {"allUsers": False}
"""Shows the operations of the asking user, for which no privilege is required."""


def _of_proxies(own: Own, **options: bool) -> dict[str, Any]:
    """Options that show connections of proxies."""
    return {**options, **({} if own.account is None else _OWN_USER)}


def _current_operations(
    options: Mapping[str, Any], condition: Mapping[str, Any], wanted: Sequence[Mapping[str, Any]] = _ANY
) -> bytes:
    """A command that returns what is ``wanted`` of the operations with this condition: by default, whether any."""
    # The session of a transaction outlives its connection, and would show a process that is gone.
    pipeline = [{"$currentOp": {"allUsers": True, "idleSessions": False, **options}}, {"$match": condition}, *wanted]
    return encode({"aggregate": 1, "pipeline": pipeline, "cursor": {}, "$db": "admin"})


@lru_cache(maxsize=256)
def _readers_of(database: str, own: Own, or_proxies: bool, but: tuple[str, ...]) -> bytes:
    inside = re.escape(database) + r"\."
    reads = [{f"command.{name}": {"$exists": True}} for name in sorted(READS_BUCKETS)]
    # They count as readers on the buckets or their view only.
    writes = [{f"command.{name}": {"$exists": True}} for name in sorted(SEEKING_WRITES)]
    kinds = [
        {"type": "idleCursor"},
        {"op": "getmore"},
        {"$or": reads},
        {"ns": Regex(f"^{inside}{_BUCKETS}"), "$or": writes},
        {"ns": Regex(f"^{inside}{_BUCKETS}"), "op": {"$in": ["update", "remove"]}},
    ]
    # Change streams and tailable cursors are open for ever and read no buckets.
    ends = {"cursor.tailable": {"$ne": True}, "cursor.originatingCommand.pipeline.0.$changeStream": {"$exists": False}}
    known = [own.name, *but]
    others = {"$nor": [{"appName": {"$in": known}, **_with_account(own)}], "ns": Regex(f"^{inside}")}
    readers: dict[str, Any] = {**others, **ends, "$or": kinds}
    condition = {"$or": [readers, _proxy_but(own, but)]} if or_proxies else readers
    return _current_operations({"idleCursors": True, "idleConnections": or_proxies}, condition)


def _all_proxies_but(own: Own) -> bytes:
    return _current_operations(_of_proxies(own, idleConnections=True), _proxy_but(own), _PROXIES)


def _activity_of(name: str, own: Own) -> bytes:
    # The driver's monitoring always waits for a hello.
    greets = {"$ifNull": ["$command.hello", {"$ifNull": ["$command.isMaster", "$command.ismaster"]}]}
    does = {"$and": [{"$eq": ["$active", True]}, {"$eq": [{"$type": greets}, "missing"]}]}
    operations = {"$addToSet": {"$cond": [does, "$opid", None]}}
    wanted = ({"$group": {"_id": None, "operations": operations}},)
    return _current_operations(_of_proxies(own, idleConnections=True), {"appName": name, **_with_account(own)}, wanted)


def _idle_transactions_but(own: Own, least_seconds: float) -> bytes:
    condition = {
        "type": "idleSession",
        "appName": {"$regex": f"^{PROGRAM} ", "$ne": own.name},
        "transaction.timeInactiveMicros": {"$gte": int(least_seconds * 1_000_000)},
    }
    wanted = ({"$group": {"_id": "$lsid.id"}}, {"$limit": MOST_ENDED})
    return _current_operations(_of_proxies(own, idleSessions=True), condition, wanted)


def _proxy_but(own: Own, but: Sequence[str] = ()) -> dict[str, Any]:
    return {"appName": {"$regex": f"^{PROGRAM}( |$)", "$nin": [own.name, *but]}, **_with_account(own)}


def _with_account(own: Own) -> dict[str, Any]:
    if own.account is None:
        return {}
    return {"effectiveUsers": {"$elemMatch": {"user": own.account.name, "db": own.account.database}}}
