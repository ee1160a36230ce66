"""Waits for write concerns without delaying the writes of other clients.

A write is stored even if its write concern is not met. So the backend waits for at most a second (``maxTimeMS``
includes that wait), and its error then shows the write concern. From then on, writes with it use ``w: 1``, and only
their clients wait: for a delete of nothing with that write concern, to which a server replies when everything that it
had written before is replicated. A few such deletes are enough for any number of clients. When replication is fast
again, writes wait for it themselves, because one command costs less.

If the default write concern of the cluster is not met within a second, the server's error shows it, and it is then
handled like one that clients name. This needs no privilege, and a change of the default applies at once.

Only the primary that stored a write can confirm it; another one may not have it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import bson
from bson.errors import InvalidBSON

from catalog.bson.codec import TOLERANT, decode, encode
from catalog.namespaces import Namespace
from catalog.ports import Confirmation, WriteConcern
from proxy.backend.replication_wait import TIME_LIMIT_EXCEEDED, Attempt, Concern, Pool, ReplicationWait, term_of
from proxy.observe.tasks import Spawn

MOST_CONCERNS: Final = 256
MOST_MEMBERS: Final = 50
"""Maximum number of members of a replica set; a server refuses to wait for more."""
SWEEP_SECONDS: Final = 1.0
OVERLOADED_SECONDS: Final = 30.0
"""After a write itself took too long, writes have no time limit for this time."""
TIMED_OUT: Final = 64
ODD_AT_ONCE: Final = 4
"""Maximum number of concurrent writes with a write concern that only the server can interpret."""
ACKNOWLEDGED_FIELDS: Final = ("electionId", "opTime", "$clusterTime", "operationTime")

Send = Callable[[Attempt], Awaitable[bytes]]
"""Sends a write and returns the raw reply document."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A client's write concern and its time limit in ms, ``None`` for none."""

    concern: Concern
    limit_ms: int | None
    is_odd: bool = False
    """Whether only the server can interpret it."""


class WriteConcernWaits:
    """All write concerns that are in use."""

    def __init__(self, pool: Pool, spawn: Spawn, patience_seconds: float) -> None:
        """``patience_seconds``: how long to wait for an unavailable backend, in addition to the client's time limit."""
        self.pool = pool
        self.spawn = spawn
        self.patience_seconds = patience_seconds
        self.close = pool.close
        self._concerns: dict[bytes, Concern] = {}
        self._asked: dict[bytes, Asked | None] = {}
        self._odd = Asked(Concern(self, None), None, is_odd=True)
        self._odd_places = asyncio.Semaphore(ODD_AT_ONCE)
        self._unlimited_until_seconds = 0.0
        self._sweeping = False

    async def write(
        self, write_concern: WriteConcern, namespace: Namespace, send: Send
    ) -> tuple[Mapping[str, Any], ReplicationWait | None]:
        """Send a write; returns the decoded reply, and the wait for its write concern if there is one.

        If there is a wait, an exceeded time limit in the reply is that of the proxy.
        """
        asked = self._asked_for(write_concern.raw)
        if asked is None:
            return decoded(await send(Attempt.AS_IT_IS)), None
        if asked.is_odd:
            async with self._odd_places:
                return await self._write(write_concern.raw, asked, namespace, send)
        return await self._write(write_concern.raw, asked, namespace, send)

    def of_steps(self, concern: bytes) -> Mapping[str, Any] | None:
        asked = self._asked_for(concern)
        if asked is None or asked.is_odd:
            return None
        if asked.concern.document is None:
            return {"w": 1}
        w = asked.concern.document["w"]
        if isinstance(w, int) and not 1 < w <= MOST_MEMBERS:
            return None
        return {"w": 1, "j": True} if asked.concern.document.get("j") else {"w": 1}

    def after(
        self, concern: bytes, namespace: Namespace, reply: Mapping[str, Any], since_seconds: float
    ) -> Confirmation:
        asked = self._asked_for(concern)
        assert asked is not None
        return self._wait(asked, namespace, reply, since_seconds)

    async def _write(
        self,
        raw: bytes,
        asked: Asked,
        namespace: Namespace,
        send: Send,
    ) -> tuple[Mapping[str, Any], ReplicationWait | None]:
        concern, loop = asked.concern, asyncio.get_running_loop()
        attempt = Attempt.LIMITED if asked.is_odd else concern.attempt()
        if attempt is Attempt.LIMITED and loop.time() < self._unlimited_until_seconds:
            attempt = Attempt.AS_IT_IS
        since_seconds = loop.time()
        concern.trials += attempt is Attempt.LIMITED
        try:
            said = decoded(await send(attempt))
        finally:
            concern.trials -= attempt is Attempt.LIMITED
        if attempt is Attempt.LIMITED:
            if _code(said) == TIME_LIMIT_EXCEEDED:
                self._unlimited_until_seconds = loop.time() + OVERLOADED_SECONDS
            error = said.get("writeConcernError")
            if not isinstance(error, Mapping) or error.get("code") != TIME_LIMIT_EXCEEDED:
                if error is not None and error.get("code") == TIMED_OUT:
                    concern.is_slow = True
                return said, None
            shown = error.get("errInfo", {}).get("writeConcern", {})
            return said, self._wait(self._learn(raw, asked, shown), namespace, said, since_seconds, shown)
        if attempt is Attempt.AS_IT_IS or not said.get("ok"):
            return said, None
        return said, self._wait(asked, namespace, said, since_seconds)

    def _asked_for(self, raw: bytes) -> Asked | None:
        """A raw write concern; ``None`` if it needs no wait."""
        if raw not in self._asked:
            if len(self._asked) >= MOST_CONCERNS:
                self._asked.clear()
            self._asked[raw] = self._understood(raw) if raw else self._of(None, None)
        return self._asked[raw]

    def _understood(self, raw: bytes) -> Asked | None:
        try:
            said = decode(raw)
        except InvalidBSON:
            return self._odd
        if not said:
            return self._of(None, None)
        w, limit = said.get("w", 1), said.get("wtimeout", 0)
        if isinstance(w, float) and w.is_integer():
            w = int(w)
        is_plain = (
            said.keys() <= {"w", "j", "wtimeout"}
            and isinstance(w, (str, int))
            and not isinstance(w, bool)
            and isinstance(said.get("j", False), bool)
            and isinstance(limit, (int, float))
            and not isinstance(limit, bool)
            and 0 <= limit < 1 << 31
        )
        if not is_plain:
            return self._odd
        if w in (0, 1):
            return None
        return self._of({"w": w, **({"j": said["j"]} if "j" in said else {})}, int(limit) or None)

    def _of(self, document: dict[str, Any] | None, limit_ms: int | None) -> Asked:
        key = b"" if document is None else encode(document)
        if key not in self._concerns:
            if len(self._concerns) >= MOST_CONCERNS:
                for known in [known for known, concern in self._concerns.items() if not concern.is_waited_for]:
                    del self._concerns[known]
            if len(self._concerns) >= MOST_CONCERNS:
                return self._odd
            self._concerns[key] = Concern(self, document)
        return Asked(self._concerns[key], limit_ms)

    def _learn(self, raw: bytes, asked: Asked, shown: Mapping[str, Any]) -> Asked:
        """Record the write concern that the server shows in its error."""
        if asked.is_odd:
            asked = self._asked[raw] = self._of(_named(shown), int(shown.get("wtimeout", 0)) or None)
        if asked.concern.document is None:
            asked.concern.show(shown)
        asked.concern.is_slow = asked.concern.document is not None
        return asked

    def named(self, shown: Mapping[str, Any]) -> Concern:
        return self._of(_named(shown), None).concern

    def _wait(
        self,
        asked: Asked,
        namespace: Namespace,
        said: Mapping[str, Any],
        since_seconds: float,
        default: Mapping[str, Any] = MappingProxyType({}),
    ) -> ReplicationWait:
        """``default``: the default write concern that the server showed for this write."""
        concern, shown = asked.concern, default
        if concern.document is not None:
            shown = {**concern.document, "wtimeout": asked.limit_ms or 0, "provenance": "clientSupplied"}
        elif default:
            concern = self.named(default)
        fields = {name: said[name] for name in ACKNOWLEDGED_FIELDS if name in said}
        wait = ReplicationWait(shown, term_of(said), fields, since_seconds)
        concern.wait(namespace, wait)
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)
        return wait

    def _sweep(self) -> None:
        waited_for = [concern for concern in self._concerns.values() if concern.is_waited_for]
        for concern in waited_for:
            concern.forget_gone()
        self._sweeping = bool(waited_for)
        if waited_for:
            asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)


def _named(shown: Mapping[str, Any]) -> dict[str, Any]:
    return {name: shown[name] for name in ("w", "j") if name in shown}


def decoded(reply: bytes) -> Mapping[str, Any]:
    """A decoded reply."""
    return bson.decode(reply, codec_options=TOLERANT)


def _code(said: Mapping[str, Any]) -> object:
    """The error code of a command, or of its first failed statement."""
    errors = said.get("writeErrors")
    return said.get("code") if not said.get("ok") else errors[0].get("code") if errors else None
