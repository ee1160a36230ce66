"""Where a command goes: a table and a pure function.

``lookup`` says which namespaces are virtual. Names that the table does not know are relayed: the backend says what
is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

from catalog.namespaces import Namespace, VirtualCollection
from proxy.request.command import Command
from proxy.request.login import refuse_certificate_login
from rewrite.commands.refused import REFUSED
from rewrite.plan import ClearBuckets, Effect, ForgetNamespace


class Unresolved(Enum):
    """What a lookup answers when only the backend knows whether a namespace is virtual (``Namespaces.resolve``)."""

    UNRESOLVED = auto()


UNRESOLVED: Final = Unresolved.UNRESOLVED

Lookup: TypeAlias = Callable[[Namespace], VirtualCollection | Unresolved | None]
"""From memory: the virtual collection of that name, ``None`` for any other, ``UNRESOLVED`` when that is not known."""


@dataclass(frozen=True, slots=True)
class Relay:
    """The client's bytes go to the backend, the backend's to the client; ``effects`` follow the reply."""

    effects: tuple[Effect, ...] = ()
    changes_identity: bool = False


@dataclass(frozen=True, slots=True)
class Translate:
    """A rewritten form goes to the backend. ``collection`` is ``None`` for database-wide commands."""

    collection: VirtualCollection | None


@dataclass(frozen=True, slots=True)
class Ingest:
    """The documents go into the shared catalog."""

    collection: VirtualCollection


@dataclass(frozen=True, slots=True)
class Answer:
    """The proxy answers about itself (hello)."""


@dataclass(frozen=True, slots=True)
class Resolve:
    """Ask the backend what ``namespace`` is, then route again."""

    namespace: Namespace


Route: TypeAlias = Relay | Translate | Ingest | Answer | Resolve


class Target(Enum):
    """Where a command names its collection."""

    FIRST = auto()
    """The first value, when it is a string; database-wide otherwise."""
    CURSOR = auto()
    """Nowhere that matters: the cursor decides."""
    EXPLAINED = auto()
    """In the command inside."""
    DATABASE = auto()
    """The whole database, or no namespace at all."""
    FULL_NAME = auto()
    """The first value is ``database.collection``."""


class Way(Enum):
    """What happens to a command on a virtual namespace (for ``Target.DATABASE``: always)."""

    TRANSLATE = auto()
    INGEST = auto()
    ANSWER = auto()
    RELAY = auto()


@dataclass(frozen=True, slots=True)
class Row:
    """One command of the table. ``redefines``: it may change what is virtual. ``writes``: it changes documents."""

    target: Target
    way: Way
    redefines: bool = False
    writes: bool = False
    changes_identity: bool = False


TABLE: Final[Mapping[str, Row]] = {
    "aggregate": Row(Target.FIRST, Way.TRANSLATE),
    "applyOps": Row(Target.DATABASE, Way.RELAY, redefines=True),
    "authenticate": Row(Target.DATABASE, Way.RELAY, changes_identity=True),
    "bulkWrite": Row(Target.DATABASE, Way.TRANSLATE),
    "cloneCollectionAsCapped": Row(Target.FIRST, Way.TRANSLATE),
    "collMod": Row(Target.FIRST, Way.TRANSLATE, redefines=True),
    "collStats": Row(Target.FIRST, Way.TRANSLATE),
    "collstats": Row(Target.FIRST, Way.TRANSLATE),
    "compact": Row(Target.FIRST, Way.TRANSLATE),
    "convertToCapped": Row(Target.FIRST, Way.TRANSLATE),
    "count": Row(Target.FIRST, Way.TRANSLATE),
    "create": Row(Target.FIRST, Way.TRANSLATE, redefines=True),
    "createIndexes": Row(Target.FIRST, Way.TRANSLATE),
    "dataSize": Row(Target.FULL_NAME, Way.TRANSLATE),
    "datasize": Row(Target.FULL_NAME, Way.TRANSLATE),
    "dbStats": Row(Target.DATABASE, Way.TRANSLATE),
    "dbstats": Row(Target.DATABASE, Way.TRANSLATE),
    "delete": Row(Target.FIRST, Way.TRANSLATE, writes=True),
    "deleteIndexes": Row(Target.FIRST, Way.TRANSLATE),
    "distinct": Row(Target.FIRST, Way.TRANSLATE),
    "drop": Row(Target.FIRST, Way.TRANSLATE, redefines=True),
    "dropDatabase": Row(Target.DATABASE, Way.TRANSLATE, redefines=True),
    "dropIndexes": Row(Target.FIRST, Way.TRANSLATE),
    "explain": Row(Target.EXPLAINED, Way.TRANSLATE),
    "find": Row(Target.FIRST, Way.TRANSLATE),
    "findAndModify": Row(Target.FIRST, Way.TRANSLATE, writes=True),
    "findandmodify": Row(Target.FIRST, Way.TRANSLATE, writes=True),
    "getMore": Row(Target.CURSOR, Way.TRANSLATE),
    "hello": Row(Target.DATABASE, Way.ANSWER),
    "insert": Row(Target.FIRST, Way.INGEST, writes=True),
    "isMaster": Row(Target.DATABASE, Way.ANSWER),
    "ismaster": Row(Target.DATABASE, Way.ANSWER),
    "killCursors": Row(Target.CURSOR, Way.TRANSLATE),
    "listCollections": Row(Target.DATABASE, Way.TRANSLATE),
    "listDatabases": Row(Target.DATABASE, Way.TRANSLATE),
    "listIndexes": Row(Target.FIRST, Way.TRANSLATE),
    "logout": Row(Target.DATABASE, Way.RELAY, changes_identity=True),
    "mapReduce": Row(Target.FIRST, Way.TRANSLATE),
    "mapreduce": Row(Target.FIRST, Way.TRANSLATE),
    "planCacheClear": Row(Target.FIRST, Way.TRANSLATE),
    "planCacheListFilters": Row(Target.FIRST, Way.TRANSLATE),
    "planCacheSetFilter": Row(Target.FIRST, Way.TRANSLATE),
    "reIndex": Row(Target.FIRST, Way.TRANSLATE),
    "renameCollection": Row(Target.FULL_NAME, Way.TRANSLATE, redefines=True),
    "saslContinue": Row(Target.DATABASE, Way.RELAY, changes_identity=True),
    "saslStart": Row(Target.DATABASE, Way.RELAY, changes_identity=True),
    "serverStatus": Row(Target.DATABASE, Way.TRANSLATE),
    "update": Row(Target.FIRST, Way.TRANSLATE, writes=True),
    "validate": Row(Target.FIRST, Way.TRANSLATE),
}

CHANGES_INDEXES: Final = frozenset({"createIndexes", "deleteIndexes", "dropIndexes"})
"""After these it is looked up anew which indexes tell the latest measurements; open buckets stay."""

RELAY: Final = Relay()
_ANSWER: Final = Answer()


def route(
    command: Command, lookup: Lookup, translated: Collection[str], knows_cursor: Callable[[Command], bool]
) -> Route:
    """Where ``command`` goes.

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
            known = command.name in translated and knows_cursor(command)
            return Translate(None) if known else RELAY
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
    return Relay(_redefinition(command, namespace)) if row.redefines else RELAY


def route_of_stranger(command: Command) -> Route:
    """Where a command of somebody who has not logged in goes where that is needed.

    To the backend, which refuses it or not; besides logins and ``hello`` nothing of it is the proxy's business.
    """
    row = TABLE.get(command.name)
    if row is None or not (row.way is Way.ANSWER or row.changes_identity):
        return RELAY
    return _database_wide(command, row, ())


def _on_virtual(command: Command, row: Row, collection: VirtualCollection, translated: Collection[str]) -> Route:
    # In a transaction the backend's own collection of that name refuses writes in its own words (X1), and the
    # refusal must reach the transaction that the backend holds.
    if row.way is Way.INGEST and not command.in_transaction:
        return Ingest(collection)
    if row.way is Way.TRANSLATE and command.name in translated:
        return Translate(collection)
    if command.name in CHANGES_INDEXES:
        return Relay((ForgetNamespace(collection.namespace),))
    return Relay(_redefinition(command, collection.namespace)) if row.redefines or row.writes else RELAY


def as_it_is(command: Command, collection: VirtualCollection | None) -> Relay:
    """For a command that turned out to be none that can be translated; what it may have changed is looked up anew."""
    row = TABLE.get(command.name)
    if row is None or not (row.redefines or row.writes):
        return RELAY
    return Relay(_redefinition(command, collection.namespace if collection is not None else command.namespace))


def _database_wide(command: Command, row: Row, translated: Collection[str]) -> Route:
    if row.way is Way.ANSWER:
        return _ANSWER
    if row.changes_identity:
        refuse_certificate_login(command)
        return Relay(changes_identity=True)
    if row.way is Way.TRANSLATE and command.name in translated:
        return Translate(None)
    if row.redefines:
        return Relay(_redefinition(command, Namespace(command.namespace.database, "")))
    return RELAY


def _on_system_collection(command: Command, row: Row, namespace: Namespace, translated: Collection[str]) -> Route:
    """Direct writes to buckets clear what the catalog holds of them (U6); some would end the server (H1)."""
    if namespace.is_buckets and command.name in REFUSED and command.name in translated:
        return Translate(None)
    if namespace.is_buckets and (row.redefines or row.writes):
        if row.redefines and command.name in translated:
            return Translate(None)
        return Relay(_redefinition(command, namespace.logical))
    if namespace.collection == "system.views" and (row.redefines or row.writes):
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
    inner = command.get("explain")
    if isinstance(inner, dict):
        first = next(iter(inner.values()), None)
        # Code is a string, too, to the decoder.
        if type(first) is str:
            return first
    return ""
