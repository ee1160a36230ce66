"""The table of all commands that the proxy does not simply relay, with the facts that it needs about each.

A pure module: data only. Commands that are not in the table are relayed, and the backend reports unknown ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Final


class Target(Enum):
    """Where a command names its collection."""

    FIRST = auto()
    """The first value, if it is a string; database-wide otherwise."""
    CURSOR = auto()
    """The cursor decides, not the name."""
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
    ADMIN = auto()
    RELAY = auto()


class Fact(Flag):
    """Facts about a command, on any route."""

    REDEFINES = auto()
    """It may change which namespaces are virtual."""
    WRITES = auto()
    """It changes documents."""
    CHANGES_IDENTITY = auto()
    """It may change the identity of the connection."""
    CHANGES_INDEXES = auto()
    """It may change which indexes support reads of the latest measurements; open buckets stay."""
    READS_BUCKETS = auto()
    """It may read buckets even if it is relayed: through a view, or of other collections in a pipeline."""
    OPENS_CURSOR = auto()
    """Its reply may leave a cursor on documents."""
    REPEATABLE = auto()
    """Executing it twice is harmless. A pipeline that ends in ``$out`` or ``$merge`` is an exception."""
    ANY_MEMBER = auto()
    """A read preference applies: another member of the replica set than the primary may answer."""
    HAS_VIEW = auto()
    """The collection's view answers it, too, to clients that may not read the buckets."""
    INLINE = auto()
    """If its plan has one step, it is sent without a task."""
    HAS_PIPELINE = auto()
    """It has a pipeline, or one inside, which may end in ``$out`` or ``$merge``."""
    CREATES = auto()
    """It creates its collection if that is missing, whatever its other arguments are."""
    UPSERTS = auto()
    """It creates its collection if that is missing and it inserts a document."""
    CREATES_OTHERS = auto()
    """It may create a collection that it names inside."""
    NUMBERS_STATEMENTS = auto()
    """It has several statements, and a client may number them (``stmtIds``)."""
    GREETS = auto()
    """Drivers send it first, and then continuously, to monitor the server."""


_QUERY: Final = Fact.READS_BUCKETS | Fact.REPEATABLE | Fact.ANY_MEMBER | Fact.HAS_VIEW | Fact.INLINE
_LISTING: Final = Fact.REPEATABLE | Fact.ANY_MEMBER


@dataclass(frozen=True, slots=True)
class Row:
    """One command of the table.

    ``endless``: bytes that its body contains if its cursor never ends; ``b""`` if there are no such cursors;
    ``rights``: privileges that a client needs on the collection before the proxy's account acts for it, or the proxy
    refuses it for what the collection is;
    ``statements``: the field that holds its statements, if it has a list of them.
    """

    target: Target
    way: Way
    facts: Fact = Fact(0)
    endless: bytes = b""
    rights: tuple[str, ...] = ()
    statements: bytes | None = None


ADMIN: Final = "tsproxy"
"""The name of all admin commands, which are for the proxy itself."""
CHANGE_STREAM: Final = b"$changeStream\0"
"""What the body of an ``aggregate`` contains that opens a change stream."""

TABLE: Final[Mapping[str, Row]] = {
    "aggregate": Row(
        Target.FIRST, Way.TRANSLATE, _QUERY | Fact.OPENS_CURSOR | Fact.HAS_PIPELINE, endless=CHANGE_STREAM
    ),
    "applyOps": Row(Target.DATABASE, Way.RELAY, Fact.READS_BUCKETS | Fact.REDEFINES | Fact.CREATES_OTHERS),
    "authenticate": Row(Target.DATABASE, Way.RELAY, Fact.CHANGES_IDENTITY),
    "buildInfo": Row(Target.DATABASE, Way.TRANSLATE, Fact.REPEATABLE),
    "buildinfo": Row(Target.DATABASE, Way.TRANSLATE, Fact.REPEATABLE),
    "bulkWrite": Row(Target.DATABASE, Way.TRANSLATE, Fact.CREATES_OTHERS),
    "cloneCollectionAsCapped": Row(Target.FIRST, Way.TRANSLATE, Fact.CREATES_OTHERS, rights=("find",)),
    "collMod": Row(Target.FIRST, Way.TRANSLATE, Fact.REDEFINES),
    "collStats": Row(Target.FIRST, Way.TRANSLATE, _LISTING),
    "collstats": Row(Target.FIRST, Way.TRANSLATE, _LISTING),
    "compact": Row(Target.FIRST, Way.TRANSLATE),
    "convertToCapped": Row(Target.FIRST, Way.TRANSLATE, rights=("convertToCapped",)),
    "count": Row(Target.FIRST, Way.TRANSLATE, _QUERY),
    "create": Row(Target.FIRST, Way.TRANSLATE, Fact.REDEFINES | Fact.CREATES),
    "createIndexes": Row(Target.FIRST, Way.TRANSLATE, Fact.CHANGES_INDEXES | Fact.CREATES),
    "dataSize": Row(Target.FULL_NAME, Way.TRANSLATE),
    "datasize": Row(Target.FULL_NAME, Way.TRANSLATE),
    "dbStats": Row(Target.DATABASE, Way.TRANSLATE, _LISTING),
    "dbstats": Row(Target.DATABASE, Way.TRANSLATE, _LISTING),
    "delete": Row(
        Target.FIRST, Way.TRANSLATE, Fact.WRITES | Fact.NUMBERS_STATEMENTS, rights=("remove",), statements=b"deletes"
    ),
    "deleteIndexes": Row(Target.FIRST, Way.TRANSLATE, Fact.CHANGES_INDEXES),
    "distinct": Row(Target.FIRST, Way.TRANSLATE, _QUERY),
    "drop": Row(Target.FIRST, Way.TRANSLATE, Fact.REDEFINES),
    "dropDatabase": Row(Target.DATABASE, Way.TRANSLATE, Fact.REDEFINES),
    "dropIndexes": Row(Target.FIRST, Way.TRANSLATE, Fact.CHANGES_INDEXES),
    "explain": Row(
        Target.EXPLAINED, Way.TRANSLATE, Fact.ANY_MEMBER | Fact.HAS_VIEW | Fact.READS_BUCKETS | Fact.HAS_PIPELINE
    ),
    "find": Row(Target.FIRST, Way.TRANSLATE, _QUERY | Fact.OPENS_CURSOR, endless=b"tailable\0"),
    "findAndModify": Row(Target.FIRST, Way.TRANSLATE, Fact.WRITES | Fact.UPSERTS, rights=("find", "remove")),
    "findandmodify": Row(Target.FIRST, Way.TRANSLATE, Fact.WRITES | Fact.UPSERTS, rights=("find", "remove")),
    "geoSearch": Row(Target.FIRST, Way.RELAY, Fact.READS_BUCKETS),
    "getMore": Row(Target.CURSOR, Way.TRANSLATE),
    "hello": Row(Target.DATABASE, Way.ANSWER, Fact.GREETS),
    "insert": Row(Target.FIRST, Way.INGEST, Fact.WRITES | Fact.CREATES | Fact.NUMBERS_STATEMENTS),
    "isMaster": Row(Target.DATABASE, Way.ANSWER, Fact.GREETS),
    "ismaster": Row(Target.DATABASE, Way.ANSWER, Fact.GREETS),
    "killCursors": Row(Target.CURSOR, Way.TRANSLATE),
    "listCollections": Row(Target.DATABASE, Way.TRANSLATE, _LISTING),
    "listDatabases": Row(Target.DATABASE, Way.TRANSLATE, _LISTING),
    "listIndexes": Row(Target.FIRST, Way.TRANSLATE, _LISTING),
    "logout": Row(Target.DATABASE, Way.RELAY, Fact.CHANGES_IDENTITY),
    "mapReduce": Row(Target.FIRST, Way.TRANSLATE, Fact.READS_BUCKETS | Fact.CREATES_OTHERS),
    "mapreduce": Row(Target.FIRST, Way.TRANSLATE, Fact.READS_BUCKETS | Fact.CREATES_OTHERS),
    "ping": Row(Target.DATABASE, Way.RELAY, Fact.REPEATABLE),
    "planCacheClear": Row(Target.FIRST, Way.TRANSLATE),
    "planCacheListFilters": Row(Target.FIRST, Way.TRANSLATE),
    "planCacheSetFilter": Row(Target.FIRST, Way.TRANSLATE),
    "reIndex": Row(Target.FIRST, Way.TRANSLATE),
    "renameCollection": Row(Target.FULL_NAME, Way.TRANSLATE, Fact.REDEFINES | Fact.CREATES_OTHERS),
    "saslContinue": Row(Target.DATABASE, Way.RELAY, Fact.CHANGES_IDENTITY),
    "saslStart": Row(Target.DATABASE, Way.RELAY, Fact.CHANGES_IDENTITY),
    "serverStatus": Row(Target.DATABASE, Way.TRANSLATE),
    ADMIN: Row(Target.DATABASE, Way.ADMIN),
    "update": Row(
        Target.FIRST,
        Way.TRANSLATE,
        Fact.WRITES | Fact.UPSERTS | Fact.NUMBERS_STATEMENTS,
        rights=("update",),
        statements=b"updates",
    ),
    "validate": Row(Target.FIRST, Way.TRANSLATE, Fact.READS_BUCKETS),
}


def commands_with(fact: Fact) -> frozenset[str]:
    """The names of the commands of which ``fact`` is true."""
    return frozenset(name for name, row in TABLE.items() if fact in row.facts)


REDEFINES: Final = commands_with(Fact.REDEFINES)
WRITES: Final = commands_with(Fact.WRITES)
SEEKING_WRITES: Final = WRITES - {"insert"}
"""Writes that search documents."""

CHANGES_IDENTITY: Final = commands_with(Fact.CHANGES_IDENTITY)
CHANGES_INDEXES: Final = commands_with(Fact.CHANGES_INDEXES)
READS_BUCKETS: Final = commands_with(Fact.READS_BUCKETS)
OPENS_CURSOR: Final = commands_with(Fact.OPENS_CURSOR)
REPEATABLE: Final = commands_with(Fact.REPEATABLE)
ANY_MEMBER: Final = commands_with(Fact.ANY_MEMBER)
HAS_VIEW: Final = commands_with(Fact.HAS_VIEW)
INLINE: Final = commands_with(Fact.INLINE)
HAS_PIPELINE: Final = commands_with(Fact.HAS_PIPELINE)
CREATES: Final = commands_with(Fact.CREATES)
UPSERTS: Final = commands_with(Fact.UPSERTS)
CREATES_OTHERS: Final = commands_with(Fact.CREATES_OTHERS)
NUMBERS_STATEMENTS: Final = commands_with(Fact.NUMBERS_STATEMENTS)
GREETS: Final = commands_with(Fact.GREETS)
ON_BUCKETS: Final = HAS_VIEW | WRITES | {"getMore", "mapReduce", "mapreduce"}
"""The commands on time-series collections that are rewritten to ones on buckets, or are about cursors on these."""

ABOUT_CURSORS: Final = frozenset(name for name, row in TABLE.items() if row.target is Target.CURSOR)
ENDS_TRANSACTION: Final = frozenset({"abortTransaction", "commitTransaction"})
"""They are relayed, as what is not in the table."""

SENT_WHEN_CONNECTING: Final = frozenset(
    {
        "atlasVersion",
        "buildInfo",
        "buildinfo",
        "connectionStatus",
        "endSessions",
        "getCmdLineOpts",
        "getLog",
        "getParameter",
        "hostInfo",
    }
)
"""Commands that mongosh and drivers send for themselves."""

NEVER_WAITS: Final = GREETS | CHANGES_IDENTITY | ENDS_TRANSACTION | {
    "buildInfo", "buildinfo", "connectionStatus", "currentOp", "endSessions", "fsyncUnlock", "killAllSessions",
    "killAllSessionsByPattern", "killCursors", "killOp", "killSessions", "ping", "refreshSessions",
}  # fmt: skip
"""Commands that take no place of a limit: they are brief, or free what other commands wait for."""

LEGACY_COMMANDS: Final = GREETS | CHANGES_IDENTITY | {"buildInfo", "buildinfo", "connectionStatus"}
"""Commands that are accepted as OP_QUERY."""
