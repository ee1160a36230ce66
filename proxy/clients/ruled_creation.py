"""Creates the collections that a rule makes time-series collections, before the command that would create them.

Only commands that a time-series collection supports are held back for that: ``insert``, ``createIndexes``, and a
``create`` without options that exclude it. An update with ``upsert``, ``$out``, ``$merge`` and commands in transactions
would be refused by a time-series collection, so they create what they create without the rule.

The collection is created over the client's own connection: the backend decides whether the client may. A client that
may not send the command at all gets the backend's refusal of it, which does not depend on what exists.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import bson

from catalog.bounded import BoundedCache
from catalog.bson.codec import CODEC
from catalog.bson.raw import document, element, iter_elements
from catalog.namespaces import Namespace
from proxy.observe.limited_log import noticed
from proxy.reads.cursors import error_code, is_ok
from proxy.request.attempt import NotTranslatable, Outcome, of_error, of_reply
from proxy.request.authorisation import INSERT, write_actions
from proxy.request.command import Command
from proxy.request.command_table import CREATES
from proxy.request.exchange import Exchange
from proxy.request.outcome import may_have_changed
from proxy.request.ports import Gate
from proxy.request.session_fields import SESSION_FIELDS, Undecodable, session_of
from proxy.settings.collection_rules import CollectionRule, rule_for
from proxy.upstream.connection import UpstreamLost

SETTLED_BYTES: Final = 1 << 20
"""Limit of the cache of names that exist; one that was removed from it is checked again."""

NAMESPACE_EXISTS: Final = 48

STAYS_ORDINARY: Final = "an ordinary collection matches a rule of create_as_timeseries"
REMEDY: Final = "it stays as it is, and its inserts are not batched; drop or rename it to apply the rule"

_ACTIONS: Final[Mapping[str, Sequence[tuple[str, ...]]]] = {
    "insert": [INSERT],
    "create": [("createCollection",), INSERT],
    "createIndexes": [("createIndex",)],
}
"""What a client needs for a command; any one of the alternatives."""

_EXPIRE: Final = b"expireAfterSeconds"
_TRUE: Final = b"\x08\x01"
_PLAIN: Final = frozenset(
    {
        *(b"capped", b"collation", b"comment", b"create", b"indexOptionDefaults", b"maxTimeMS", b"readConcern"),
        *(b"storageEngine", b"writeConcern", b"$db", _EXPIRE),
        *SESSION_FIELDS,
    }
)
"""The options of ``create`` that a time-series collection may have, too (C4)."""


class _Settled:
    """A name that exists, not as a time-series collection."""

    __slots__ = ("at_seconds", "warned")

    def __init__(self, at_seconds: float) -> None:
        self.at_seconds = at_seconds
        self.warned = False


def _weight(namespace: Namespace, settled: _Settled) -> int:
    return 300 + 4 * (len(namespace.database) + len(namespace.collection))


class RuledCreation:
    """Applies the rules to commands that would create a collection."""

    def __init__(
        self,
        rules: Sequence[CollectionRule],
        gate: Gate,
        exists: Callable[[Namespace], Awaitable[bool]],
        forget: Callable[[Namespace], None],
        now_seconds: Callable[[], float],
        refresh_seconds: float,
    ) -> None:
        """``exists`` asks the backend and raises ``CommandError``; its answer is used for ``refresh_seconds``.

        ``forget``: the known namespace may have changed.
        """
        self._rules = tuple(rules)
        self._gate = gate
        self._exists = exists
        self._forget = forget
        self._now_seconds = now_seconds
        self.refresh_seconds = refresh_seconds
        self._settled: BoundedCache[Namespace, _Settled] = BoundedCache(SETTLED_BYTES, _weight)

    def rule_of(self, command: Command) -> CollectionRule | None:
        """The rule for the collection that this command would create; ``None`` if it is not concerned."""
        if command.name not in CREATES or not command.namespace.collection or command.in_transaction:
            return None
        if command.name == "create" and not _is_plain(command):
            return None
        return rule_for(self._rules, command.namespace)

    def is_settled(self, namespace: Namespace) -> bool:
        """Whether the backend has reported a moment ago that this name exists; it is no time-series collection.

        Warns of it once.
        """
        settled = self._settled.get(namespace)
        if settled is None or self._now_seconds() >= settled.at_seconds + self.refresh_seconds:
            return False
        if not settled.warned:
            settled.warned = True
            noticed.warning(STAYS_ORDINARY, collection=str(namespace), remedy=REMEDY)
        return True

    def forgotten(self, namespace: Namespace) -> None:
        """A command through this proxy has changed the collection; with an empty name, any of the database."""
        if namespace.collection:
            self._settled.discard(namespace)
        else:
            self._settled.clear()

    async def create(self, exchange: Exchange, rule: CollectionRule, go_on: Callable[[Exchange], None]) -> None:
        """Create the collection of the exchange's command if there is none.

        Then ``go_on`` is called, or the exchange ends: with the reply to ``create``, or with the backend's refusal.
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
        namespace = command.namespace
        fields = session_of(command.body)
        if fields.refused_in(command.name) or not await self._may_send(exchange, command):
            return NotTranslatable(None)
        if await self._exists(namespace):
            self._settle(namespace)
            return None
        try:
            reply = await exchange.session.upstream.run(namespace.database, _creating(command, rule), fields.extra())
        except UpstreamLost:
            self._forget(namespace)
            raise
        if may_have_changed(reply) or error_code(reply) == NAMESPACE_EXISTS:
            self._forget(namespace)
        if command.name != "create" and (is_ok(reply) or error_code(reply) == NAMESPACE_EXISTS):
            # Another client may have been faster.
            return None
        return of_reply(reply, command.name)

    async def _may_send(self, exchange: Exchange, command: Command) -> bool:
        for actions in _ACTIONS[command.name]:
            if await self._gate.allows(exchange.session, write_actions(command, actions), command.namespace):
                return True
        return False

    def _settle(self, namespace: Namespace) -> None:
        settled = self._settled.peek(namespace)
        if settled is not None:
            settled.at_seconds = self._now_seconds()
            return
        # Another proxy may have created it a moment ago: the listing is older than this answer.
        self._forget(namespace)
        self._settled.put(namespace, _Settled(self._now_seconds()))


def _is_plain(command: Command) -> bool:
    fields = command.fields
    if fields.keys() - _PLAIN:
        return False
    return b"capped" not in fields or not command.get("capped")


def _creating(command: Command, rule: CollectionRule) -> bytes:
    """The ``create`` for this command, without session fields: the client's own options stay as they are."""
    given = {"timeseries": dict(rule.timeseries)}
    if command.name != "create":
        elements = [element(b"create", b"\x02" + command.raw(command.name.encode()))]
    else:
        left_out = SESSION_FIELDS | {b"$db"}
        elements = [element(name, value) for name, value in iter_elements(command.body) if name not in left_out]
    if rule.expire_after_seconds is not None and _EXPIRE not in command.fields:
        given[_EXPIRE.decode()] = rule.expire_after_seconds  # type: ignore[assignment]
    return document([*elements, bson.encode(given, codec_options=CODEC)[4:-1]])
