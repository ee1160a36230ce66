"""Stored writes whose write concern is not met yet, and the commands that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, Protocol

from catalog.bson.codec import decode, encode
from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import Namespace
from catalog.ports import Acknowledgement, Confirmed
from catalog.queries import NO_DOCUMENT
from proxy.observe.tasks import Spawn
from proxy.upstream.not_primary import NOT_PRIMARY_CODES

LONGEST_WAIT_MS: Final = 1_000
"""Maximum time that a write over the shared connections waits for its write concern."""
FAST_SECONDS: Final = 0.25
"""If replication takes no longer than this, writes wait for it themselves."""
TRIALS: Final = 8
"""Maximum number of concurrent writes with one write concern that wait themselves after it was not met."""
DEFAULT_SECONDS: Final = 30.0
"""After the default write concern of the cluster was not met, writes with it do not wait themselves for this time."""
WAVES: Final = 3
"""Maximum number of concurrent deletes of nothing with one write concern."""
WAVE_PAUSE_SECONDS: Final = 0.02
WAVE_SECONDS: Final = 3_600.0
TIME_LIMIT_EXCEEDED: Final = 50
MOST_REFUSALS: Final = 3
"""How often a delete of nothing may fail for a permanent reason."""
_RETRY_SECONDS: Final = (0.05, 1.0)
_LOST: Final = frozenset({6, 7, 89, 91, 189, 262, 9001, 11600, 11602, *NOT_PRIMARY_CODES})


class Attempt(Enum):
    """How a write is sent; the value are its fields."""

    AS_IT_IS = ()
    """The write concern needs no wait, or only the server can interpret it."""
    LIMITED = (("maxTimeMS", LONGEST_WAIT_MS),)
    LOCAL = (("writeConcern", {"w": 1}),)
    JOURNALED = (("writeConcern", {"w": 1, "j": True}),)

    __hash__ = object.__hash__
    """The usual one is not compiled, and each commit needs it."""


class Pool(Protocol):
    """Connections for commands that may wait for a long time."""

    async def request(self, body: bytes, deadline_seconds: float) -> bytes:
        """Send one command; raises ``BackendUnavailable`` and ``CommandError``."""
        ...

    def forget_primary(self) -> None:
        """The primary may have changed."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class Waits(Protocol):
    """The state that all write concerns share (``proxy.backend.write_concern_waits``)."""

    pool: Pool
    spawn: Spawn
    patience_seconds: float

    def named(self, shown: Mapping[str, Any]) -> Concern:
        """The write concern that a server shows in its errors."""
        ...


def term_of(reply: Mapping[str, Any]) -> object:
    """The term of the primary that made a reply."""
    optime = reply.get("opTime")
    return optime.get("t") if isinstance(optime, Mapping) else reply.get("electionId")


class ReplicationWait:
    """A stored write whose write concern is not met yet; see ``catalog.ports.Confirmation``."""

    __slots__ = (
        "_listeners",
        "_outcome",
        "_since_seconds",
        "answered_at_seconds",
        "concern",
        "fields",
        "is_over",
        "sent_at_seconds",
        "term",
    )

    def __init__(
        self, concern: Mapping[str, Any], term: object, fields: Mapping[str, Any], since_seconds: float
    ) -> None:
        """``concern`` as errors show it; empty for a default that is not known yet.

        ``fields`` as for ``Acknowledgement``; the time limit counts from ``since_seconds``.
        """
        self.concern = concern
        self.term = term
        self.fields = fields
        self._since_seconds = since_seconds
        self.is_over = False
        self.sent_at_seconds = self.answered_at_seconds = 0.0
        """Of the write; see ``Acknowledgement``."""
        self._outcome: Acknowledgement | CommandError = Acknowledgement()
        self._listeners: list[tuple[Confirmed, Callable[[], bool]]] = []

    @property
    def deadline_seconds(self) -> float | None:
        """The time limit of its write concern; ``None`` if it has none."""
        limit_ms = int(self.concern.get("wtimeout", 0))
        return self._since_seconds + limit_ms / 1000 if limit_ms else None

    def when_known(self, tell: Confirmed, is_gone: Callable[[], bool]) -> None:
        if self.is_over:
            tell(self._outcome)
        else:
            self._listeners.append((tell, is_gone))

    def forget_gone(self) -> None:
        """Remove the clients that have disconnected."""
        self._listeners = [listener for listener in self._listeners if not listener[1]()]

    def end(self, outcome: Acknowledgement | CommandError) -> None:
        """Give the outcome to all clients that wait, once."""
        if self.is_over:
            return
        self.is_over = True
        self._outcome = outcome
        listeners, self._listeners = self._listeners, []
        for tell, _ in listeners:
            tell(outcome)

    def confirm(self) -> None:
        """The write concern is met."""
        self.end(self._acknowledgement(None))

    def fail(self, error: Mapping[str, Any]) -> None:
        """The write concern was not met; the clients get the server's error with their own write concern."""
        info = error.get("errInfo", {})
        if self.concern:
            info = {**info, "writeConcern": self.concern}
        self.end(self._acknowledgement({**error, "errInfo": info}))

    def _acknowledgement(self, error: Mapping[str, Any] | None) -> Acknowledgement:
        return Acknowledgement(
            error, self.fields, None, self.sent_at_seconds, self.answered_at_seconds, is_confirmed=True
        )

    def lose(self, reason: str) -> None:
        """The outcome will never be known."""
        self.end(BackendUnavailable(f"the outcome of this write is unknown: {reason}", code=189))


class Concern:
    """One write concern without its time limit, and the writes that wait for it."""

    def __init__(self, waits: Waits, document: Mapping[str, Any] | None) -> None:
        """``document``: ``None`` for the default of the cluster, which is unknown until a write with it is late."""
        self._waits = waits
        self.document = document
        self._shown: Mapping[str, Any] = {}
        self._shown_until_seconds = 0.0
        self.is_slow = False
        self.trials = 0
        self._waiting: list[tuple[ReplicationWait, Namespace]] = []
        self._under_way: set[ReplicationWait] = set()
        self._expired: list[tuple[ReplicationWait, Namespace]] = []
        self._is_ending = False
        self._waves = 0
        self._scheduled = False

    def attempt(self) -> Attempt:
        """How to send a write with this write concern."""
        if self._shown and asyncio.get_running_loop().time() < self._shown_until_seconds:
            return self._waits.named(self._shown).attempt()
        if self.is_slow or self.trials >= TRIALS:
            return Attempt.JOURNALED if self.document is not None and self.document.get("j") else Attempt.LOCAL
        return Attempt.LIMITED

    def show(self, shown: Mapping[str, Any]) -> Concern:
        """The server did not meet the default in time, and its error shows what the default is."""
        self._shown = shown
        self._shown_until_seconds = asyncio.get_running_loop().time() + DEFAULT_SECONDS
        named = self._waits.named(shown)
        named.is_slow = True
        return named

    def wait(self, namespace: Namespace, wait: ReplicationWait) -> None:
        """Confirm this write when it is replicated; ``namespace`` is one that the proxy's account may delete from."""
        self._waiting.append((wait, namespace))
        self._under_way.add(wait)
        loop = asyncio.get_running_loop()
        if wait.deadline_seconds is not None:
            loop.call_at(wait.deadline_seconds, self._expire, wait, namespace)
        if not self._scheduled and self._waves < WAVES:
            self._scheduled = True
            loop.call_later(WAVE_PAUSE_SECONDS if self._waves else 0, self._start)

    @property
    def is_waited_for(self) -> bool:
        """Whether any write waits for it."""
        return bool(self._under_way)

    def forget_gone(self) -> None:
        """Remove the clients that have disconnected from all waits."""
        for wait in self._under_way:
            wait.forget_gone()

    def _start(self) -> None:
        self._scheduled = False
        wave, self._waiting = [each for each in self._waiting if not each[0].is_over], []
        if wave:
            self._waves += 1
            self._waits.spawn(self._wave(wave))

    async def _wave(self, wave: list[tuple[ReplicationWait, Namespace]]) -> None:
        started_seconds = asyncio.get_running_loop().time()
        try:
            said = await self._end(wave, self.document)
            if said is not None and asyncio.get_running_loop().time() - started_seconds < FAST_SECONDS:
                self.is_slow = False
                if "writeConcernError" not in said:
                    self._shown = {}
        finally:
            self._waves -= 1
            if self._waiting and not self._scheduled:
                self._start()

    async def _end(
        self, wave: list[tuple[ReplicationWait, Namespace]], concern: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """End these waits as the server says; returns its reply, ``None`` if there is none."""
        try:
            said = await self._ask(wave[0][1], concern)
        except CommandError as error:
            for wait, _ in wave:
                wait.lose(error.message)
            return None
        else:
            self._judge(wave, said)
            return said
        finally:
            self._under_way.difference_update(wait for wait, _ in wave)

    def _judge(self, wave: list[tuple[ReplicationWait, Namespace]], said: Mapping[str, Any]) -> None:
        error, term = said.get("writeConcernError"), term_of(said)
        shown = {}
        if error is not None and error.get("code") == TIME_LIMIT_EXCEEDED:
            shown = error.get("errInfo", {}).get("writeConcern", {})
        for wait, namespace in wave:
            # A reply without a term is to a write concern for which the server does not wait: 5.0 takes ``w: ""`` so.
            if term is not None and term != wait.term:
                wait.lose("another primary was elected before it was replicated")
            elif error is None:
                wait.confirm()
            elif shown:
                wait.concern = shown
                self.show(shown).wait(namespace, wait)
            else:
                wait.fail(error)

    async def _ask(self, namespace: Namespace, concern: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Send a delete of nothing, repeatedly if there is no result; raises ``CommandError``.

        Without ``concern``, the server waits for the default, for at most a second, and its error shows that.
        """
        body: dict[str, Any] = {
            "delete": namespace.collection,
            "deletes": [{"q": NO_DOCUMENT, "limit": 1}],
            "$db": namespace.database,
        }
        if concern is None:
            body["maxTimeMS"] = LONGEST_WAIT_MS
        else:
            body["writeConcern"] = concern
        message, loop = encode(body), asyncio.get_running_loop()
        until_seconds: float | None = None
        refusals = 0
        pause_seconds, longest_seconds = _RETRY_SECONDS
        while True:
            try:
                said = decode(await self._waits.pool.request(message, loop.time() + WAVE_SECONDS))
            except BackendUnavailable as lost:
                error: CommandError = lost
            else:
                failure = said if not said.get("ok") else said.get("writeConcernError", {})
                code = int(failure.get("code", 0))
                if code not in _LOST and said.get("ok"):
                    return said
                # The proxy's own message: the server's is about a step that the client did not send.
                error = CommandError(code, f"waiting for its write concern failed with code {code}")
                refusals += code not in _LOST
                if refusals == MOST_REFUSALS:
                    raise error
                self._waits.pool.forget_primary()
            now_seconds = loop.time()
            until_seconds = until_seconds or now_seconds + self._waits.patience_seconds
            if now_seconds >= until_seconds:
                raise error
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, longest_seconds)

    def _expire(self, wait: ReplicationWait, namespace: Namespace) -> None:
        if wait.is_over:
            return
        self._expired.append((wait, namespace))
        if not self._is_ending:
            self._is_ending = True
            self._waits.spawn(self._end_expired())

    async def _end_expired(self) -> None:
        """The time limits of waits have expired: get the server's own error, one for all that wait for it together."""
        try:
            while wave := [each for each in self._expired if not each[0].is_over]:
                self._expired = []
                shown = wave[0][0].concern
                concern = {name: shown[name] for name in ("w", "j") if name in shown}
                await self._end(wave, {**concern, "wtimeout": 1})
        finally:
            self._is_ending = False
