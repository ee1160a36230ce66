"""Creates the collections that a rule makes time-series collections, before the command that would create them.

Only commands that a time-series collection supports are held back for that: ``insert``, ``createIndexes``, and a
``create`` without options that exclude it. An update with ``upsert``, ``$out``, ``$merge`` and commands in transactions
would be refused by a time-series collection, so they create what they create without the rule.

The collection is created over the client's own connection: the backend decides whether the client may. A client that
may not send the command at all gets the backend's refusal of it, which does not depend on what exists.

If another client makes an ordinary collection of the name at the same time, the backend's ``create`` fails and leaves
buckets behind, and the backend puts what is inserted into them, where no read finds it (H16). The proxy refuses inserts
into such a name. It cannot remove the buckets: a ``drop`` of them removes the other client's collection instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from catalog.bounded import BoundedCache
from catalog.errors import CommandError
from catalog.namespaces import Namespace
from proxy.clients.creating_commands import creating, is_plain_create, is_sound
from proxy.clients.creations import Creations
from proxy.observe.limited_log import noticed
from proxy.reads.cursors import error_code, is_ok
from proxy.request.attempt import NotTranslatable, Outcome, Refused, of_error, of_reply
from proxy.request.authorisation import INSERT, write_actions
from proxy.request.command import Command
from proxy.request.command_table import CREATES
from proxy.request.exchange import Exchange
from proxy.request.name_use import NameUse
from proxy.request.outcome import may_have_changed
from proxy.request.ports import Gate
from proxy.request.session_fields import Undecodable, checked_session_of
from proxy.settings.collection_rules import CollectionRule, rule_for
from proxy.upstream.connection import UpstreamLost

SETTLED_BYTES: Final = 1 << 20
"""Limit of the cache of names that exist; one that was removed from it is checked again."""

NAMESPACE_EXISTS: Final = 48

STAYS_ORDINARY: Final = "an ordinary collection matches a rule of create_as_timeseries"
REMEDY: Final = "it stays as it is, and its inserts are not batched; drop or rename it to apply the rule"

SPLIT: Final = "buckets without their time-series collection: inserts are refused"
SPLIT_REMEDY: Final = (
    "rename the collection if there is one (a drop of the buckets would remove it), then create the time-series "
    "collection, which takes the buckets over, or drop the buckets if they are empty"
)

ATTEMPTS: Final = 6
PAUSE_SECONDS: Final = 0.1
"""Between two looks at a name. A ``create`` that began before an ordinary collection was made, and that will fail, has
made its buckets by then."""

DOUBTFUL_SECONDS: Final = 2.0
"""For this time after an ordinary collection was first seen, the proxy looks for buckets before each insert."""

_ACTIONS: Final[Mapping[str, Sequence[tuple[str, ...]]]] = {
    "insert": [INSERT],
    "create": [("createCollection",), INSERT],
    "createIndexes": [("createIndex",)],
}
"""What a client needs for a command; any one of the alternatives."""


class _Settled:
    """A name that exists, not as a time-series collection."""

    __slots__ = ("at_seconds", "since_seconds", "warned")

    def __init__(self, since_seconds: float) -> None:
        """``since_seconds``: of the first look."""
        self.since_seconds = since_seconds
        self.at_seconds = since_seconds
        """Of the latest look."""
        self.warned = False


def _weight(namespace: Namespace, settled: _Settled) -> int:
    return 300 + 4 * (len(namespace.database) + len(namespace.collection))


class RuledCreation:
    """Applies the rules to commands that would create a collection."""

    def __init__(
        self,
        rules: Sequence[CollectionRule],
        gate: Gate,
        use_of: Callable[[Namespace], Awaitable[NameUse]],
        forget: Callable[[Namespace], None],
        now_seconds: Callable[[], float],
        refresh_seconds: float,
        *,
        replicates: bool,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        """``use_of`` asks the backend and raises ``CommandError``; its answer is used for ``refresh_seconds``.

        ``forget``: the known namespace may have changed. ``replicates``: the backend is a replica set or a mongos.
        """
        self._rules = tuple(rules)
        self._gate = gate
        self._use_of = use_of
        self._forget = forget
        self._now_seconds = now_seconds
        self.refresh_seconds = refresh_seconds
        self._replicates = replicates
        self._pause_seconds = pause_seconds
        self._settled: BoundedCache[Namespace, _Settled] = BoundedCache(SETTLED_BYTES, _weight)
        self._creations = Creations()
        self._going_on: Exchange | None = None

    def rule_of(self, command: Command) -> CollectionRule | None:
        """The rule for the collection that this command would create; ``None`` if it is not concerned."""
        if command.name not in CREATES or not command.namespace.collection or command.in_transaction:
            return None
        if command.name == "create" and not is_plain_create(command):
            return None
        return rule_for(self._rules, command.namespace)

    def covers(self, command: Command) -> bool:
        """Whether a rule is for the collection that this command names and may create, in a transaction, too."""
        return command.name in CREATES and rule_for(self._rules, command.namespace) is not None

    def is_settled(self, namespace: Namespace) -> bool:
        """Whether the backend has reported a moment ago that this name exists, and it is certain what it is."""
        settled, now_seconds = self._settled.get(namespace), self._now_seconds()
        if settled is None or now_seconds < settled.since_seconds + DOUBTFUL_SECONDS:
            return False
        return now_seconds < settled.at_seconds + self.refresh_seconds

    def forgotten(self, namespace: Namespace) -> None:
        """A command through this proxy has changed the collection; with an empty name, any of the database."""
        if namespace.collection:
            self._settled.discard(namespace)
        else:
            self._settled.clear()

    def goes_on(self, exchange: Exchange) -> bool:
        """Whether this is a command that has waited and is going on now."""
        return exchange is self._going_on

    def disturbed_by(self, command: Command) -> bool:
        """Whether a command that no rule is for has to wait for a creation."""
        return self._creations.disturbed_by(command)

    async def wait(self, exchange: Exchange, go_on: Callable[[Exchange], None]) -> None:
        """Let such a command go on when the creation has ended, or after some seconds."""
        with exchange.times().at_backend():
            await self._creations.undisturbed(exchange.parsed())
        self._going_on = exchange
        try:
            go_on(exchange)
        finally:
            self._going_on = None

    async def create(self, exchange: Exchange, rule: CollectionRule, go_on: Callable[[Exchange], None]) -> None:
        """Create the collection of the exchange's command if there is none.

        Then ``go_on`` is called, or the exchange ends: with the reply to ``create``, with a refusal, or with
        ``NotTranslatable``.
        """
        try:
            outcome = await self._attempt(exchange, exchange.parsed(), rule)
        except Undecodable:
            outcome = NotTranslatable(None)
        except Exception as error:  # noqa: BLE001  (it becomes the outcome)
            outcome = of_error(error)
        if outcome is None:
            go_on(exchange)
        else:
            exchange.end(outcome)

    async def _attempt(self, exchange: Exchange, command: Command, rule: CollectionRule) -> Outcome | None:
        """``None`` if the command is routed again, because there is a time-series collection now."""
        namespace, fields = command.namespace, checked_session_of(command.body, command.name)
        if not await self._may_send(exchange, command):
            return NotTranslatable(None)
        use, pauses = NameUse.FREE, False
        for _ in range(ATTEMPTS):
            if pauses:
                await asyncio.sleep(self._pause_seconds)
            is_alone = await self._creations.ended(namespace)
            use = await self._use_of(namespace)
            if use is NameUse.TIMESERIES:
                self._settle(namespace, use)
                return None
            if use is NameUse.OTHER:
                seconds = self._settle(namespace, use)
                pauses = command.name == "insert" and seconds < self._pause_seconds
                if pauses:
                    continue
                break
            self._settled.discard(namespace)
            if use is NameUse.SPLIT or not is_sound(command, replicates=self._replicates):
                break
            if is_alone and self._creations.is_under_way(namespace):
                continue
            with self._creations.creating(namespace):
                reply = await self._create(exchange, command, rule, fields.extra())
            if command.name != "create" and is_ok(reply):
                return None
            if command.name == "create" or error_code(reply) != NAMESPACE_EXISTS:
                return of_reply(reply, command.name)
            pauses = use is NameUse.BUCKETS_ALONE
        return self._as_it_is(command, use)

    async def _may_send(self, exchange: Exchange, command: Command) -> bool:
        for actions in _ACTIONS[command.name]:
            if await self._gate.allows(exchange.session, write_actions(command, actions), command.namespace):
                return True
        return False

    async def _create(self, exchange: Exchange, command: Command, rule: CollectionRule, extra: bytes) -> bytes:
        try:
            reply = await exchange.session.upstream.run(command.namespace.database, creating(command, rule), extra)
        except UpstreamLost:
            self._forget(command.namespace)
            raise
        # With NAMESPACE_EXISTS, another client was faster.
        if may_have_changed(reply) or error_code(reply) == NAMESPACE_EXISTS:
            self._forget(command.namespace)
        return reply

    def _as_it_is(self, command: Command, use: NameUse) -> Outcome:
        """What becomes of a command for which nothing is created."""
        namespace = command.namespace
        if command.name != "insert" or use not in (NameUse.SPLIT, NameUse.BUCKETS_ALONE):
            return NotTranslatable(None)
        noticed.warning(SPLIT, collection=str(namespace), remedy=SPLIT_REMEDY)
        buckets = namespace.buckets
        message = (
            f"nobody could read what is inserted into {namespace}: it is no time-series collection, but there are "
            f"buckets for it in {buckets}, left behind by a create that failed. Remedy: {SPLIT_REMEDY}"
        )
        return Refused(CommandError(NAMESPACE_EXISTS, message))

    def _settle(self, namespace: Namespace, use: NameUse) -> float:
        """Record that the name exists; returns for how many seconds that is known."""
        now_seconds = self._now_seconds()
        settled = self._settled.peek(namespace)
        if settled is None:
            # Another proxy may have created it a moment ago: the listing is older than this answer.
            self._forget(namespace)
            settled = _Settled(now_seconds if use is NameUse.OTHER else now_seconds - DOUBTFUL_SECONDS)
            self._settled.put(namespace, settled)
        settled.at_seconds = now_seconds
        if use is NameUse.OTHER and not settled.warned:
            settled.warned = True
            noticed.warning(STAYS_ORDINARY, collection=str(namespace), remedy=REMEDY)
        return now_seconds - settled.since_seconds
