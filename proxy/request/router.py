"""Decides how a command is handled: a table and a pure function.

``lookup`` returns whether a namespace is a time-series collection (*virtual*). Commands that are not in the table are
relayed, so the backend reports unknown ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

from catalog.namespaces import Namespace, VirtualCollection
from proxy.request.command import Command
from proxy.request.command_table import (
    CHANGES_IDENTITY,
    CHANGES_INDEXES,
    REDEFINES,
    TABLE,
    WRITES,
    Row,
    Target,
    Way,
)
from proxy.request.login import refuse_certificate_login
from proxy.request.malformed import may_be_malformed
from proxy.wire.framing import DOCUMENT, STRING
from rewrite.commands.refused import REFUSED
from rewrite.plan import ClearBuckets, Effect, ForgetNamespace


class Unresolved(Enum):
    """The result if the backend must be asked whether a namespace is virtual (``Namespaces.resolve``)."""

    UNRESOLVED = auto()


UNRESOLVED: Final = Unresolved.UNRESOLVED

Lookup: TypeAlias = Callable[[Namespace], VirtualCollection | Unresolved | None]
"""From memory: the virtual collection, ``None`` for any other namespace, ``UNRESOLVED`` if that is not known."""


Resolved: TypeAlias = tuple[Namespace, VirtualCollection | None]
"""A namespace, and the collection that the backend has just reported for it; ``None`` if it is not virtual."""


def resolved_or(resolved: Resolved, lookup: Lookup) -> Lookup:
    """``lookup``, but with the result of a command's own query: the registry may have dropped it already."""
    return lambda namespace: resolved[1] if resolved[0] == namespace else lookup(namespace)


@dataclass(frozen=True, slots=True)
class Relay:
    """Relay the client's bytes and the reply; ``effects`` follow the reply."""

    effects: tuple[Effect, ...] = ()
    changes_identity: bool = False


@dataclass(frozen=True, slots=True)
class Translate:
    """Send a rewritten command. ``collection`` is ``None`` for database-wide commands."""

    collection: VirtualCollection | None


@dataclass(frozen=True, slots=True)
class Ingest:
    """Add the documents to the shared catalog."""

    collection: VirtualCollection


@dataclass(frozen=True, slots=True)
class AnswerLocally:
    """The proxy replies itself (hello)."""


@dataclass(frozen=True, slots=True)
class Administer:
    """The command is about the proxy itself (``proxy.admin``)."""


@dataclass(frozen=True, slots=True)
class Resolve:
    """Ask the backend about ``namespace``, then route again."""

    namespace: Namespace


Route: TypeAlias = Relay | Translate | Ingest | AnswerLocally | Administer | Resolve


_CHANGES: Final = REDEFINES | WRITES
RELAY: Final = Relay()
_ANSWER: Final = AnswerLocally()
_ADMINISTER: Final = Administer()


def route(
    command: Command, lookup: Lookup, translated: Collection[str], knows_cursor: Callable[[Command], bool]
) -> Route:
    """The route of ``command``.

    ``translated`` are the commands that have a rewriter (others are relayed); ``knows_cursor`` tells whether a
    ``getMore`` or ``killCursors`` is about a cursor of a translated read.
    """
    row = TABLE.get(command.name)
    if row is None:
        return RELAY
    match row.target:
        case Target.FIRST:
            namespace = command.namespace
        case Target.DATABASE:
            return _database_wide(command, row, translated)
        case Target.CURSOR:
            return _of_cursor(command, lookup, translated, knows_cursor)
        case Target.EXPLAINED:
            namespace = Namespace(command.namespace.database, explained_collection(command))
        case Target.FULL_NAME:
            database, _, collection = command.namespace.collection.partition(".")
            namespace = Namespace(database, collection)
    if not namespace.collection:
        return _database_wide(command, row, translated)
    if namespace.collection.startswith("system."):
        return _on_system_collection(command, row, namespace, translated)
    collection_or_none = lookup(namespace)
    if isinstance(collection_or_none, Unresolved):
        return Resolve(namespace)
    if isinstance(collection_or_none, VirtualCollection):
        return _on_virtual(command, row, collection_or_none, translated)
    if (
        command.name in ("create", "renameCollection")
        and command.name in translated
        and b"timeseries" in command.fields
    ):
        return Translate(None)
    return Relay(_redefinition(command, namespace)) if command.name in REDEFINES else RELAY


def _of_cursor(
    command: Command, lookup: Lookup, translated: Collection[str], knows_cursor: Callable[[Command], bool]
) -> Route:
    # A cursor on buckets may be older than the present access to time-series collections.
    if knows_cursor(command):
        return Translate(None)
    if command.name not in translated:
        return RELAY
    collection = command.get("collection") if command.name == "getMore" else None
    if not isinstance(collection, str) or not collection or collection.startswith(("system.", "$")):
        return RELAY
    # Another process may have opened the cursor on buckets, of a collection that this one has not seen.
    namespace = Namespace(command.namespace.database, collection)
    return Resolve(namespace) if isinstance(lookup(namespace), Unresolved) else RELAY


def route_before_login(command: Command) -> Route:
    """The route of a command of a client that must log in and has not.

    All commands are relayed, except that the proxy handles logins and ``hello``, and refuses admin commands.
    """
    row = TABLE.get(command.name)
    if row is None or not (row.way in (Way.ANSWER, Way.ADMIN) or command.name in CHANGES_IDENTITY):
        return RELAY
    return _database_wide(command, row, ())


def _on_virtual(command: Command, row: Row, collection: VirtualCollection, translated: Collection[str]) -> Route:
    if may_be_malformed(command):
        # Not ``RELAY``, by which ``proxy.relay.plain_relay`` would recognise well-formed ones.
        return Relay(as_it_is(command, collection).effects)
    # In a transaction, the backend's native collection refuses writes (X1), and the error must end the backend's
    # transaction.
    if row.way is Way.INGEST and not command.in_transaction:
        return Ingest(collection)
    if row.way is Way.TRANSLATE and command.name in translated:
        return Translate(collection)
    if command.name in CHANGES_INDEXES:
        return Relay((ForgetNamespace(collection.namespace),))
    return Relay(_redefinition(command, collection.namespace)) if command.name in _CHANGES else RELAY


def as_it_is(command: Command, collection: VirtualCollection | None) -> Relay:
    """The route of a command that cannot be translated after all; it has the effects of what it may change."""
    row = TABLE.get(command.name)
    if row is None or command.name not in _CHANGES or row.way is Way.INGEST:
        return RELAY
    return Relay(_redefinition(command, collection.namespace if collection is not None else command.namespace))


def _database_wide(command: Command, row: Row, translated: Collection[str]) -> Route:
    if row.way is Way.ANSWER:
        return _ANSWER
    if row.way is Way.ADMIN:
        return _ADMINISTER
    if command.name in CHANGES_IDENTITY:
        refuse_certificate_login(command)
        return Relay(changes_identity=True)
    if row.way is Way.TRANSLATE and command.name in translated:
        return Translate(None)
    if command.name in REDEFINES:
        return Relay(_redefinition(command, Namespace(command.namespace.database, "")))
    return RELAY


def _on_system_collection(command: Command, row: Row, namespace: Namespace, translated: Collection[str]) -> Route:
    """Direct writes to buckets clear them from the catalog (U6); some would crash the server (H1)."""
    if namespace.is_buckets and command.name in REFUSED and command.name in translated:
        return Translate(None)
    if namespace.is_buckets and (command.name in _CHANGES):
        if command.name in REDEFINES and command.name in translated:
            return Translate(None)
        return Relay(_redefinition(command, namespace.logical))
    if namespace.collection == "system.views" and (command.name in _CHANGES):
        return Relay((ForgetNamespace(Namespace(namespace.database, "")),))
    return RELAY


def _redefinition(command: Command, namespace: Namespace) -> tuple[Effect, ...]:
    effects: list[Effect] = [ClearBuckets(namespace), ForgetNamespace(namespace)]
    if command.name == "renameCollection":
        database, _, collection = str(command.get("to") or "").partition(".")
        effects += [ClearBuckets(Namespace(database, collection)), ForgetNamespace(Namespace(database, collection))]
    return tuple(effects)


def explained_collection(command: Command) -> str:
    """The collection that an ``explain`` is about; ``""`` when it names none."""
    kind, start, end = command.fields.get(b"explain", (0, 0, 0))
    if kind != DOCUMENT:
        return ""
    body = command.body
    value = body.find(0, start + 5, end) + 1
    # Only the first field is looked at: what is explained may be large.
    if body[start + 4] != STRING or not value:
        return ""
    text_end = value + 4 + int.from_bytes(body[value : value + 4], "little") - 1
    if not value + 4 <= text_end <= end:
        return ""
    text = body[value + 4 : text_end]
    try:
        return text.decode()
    except UnicodeDecodeError:
        return ""
