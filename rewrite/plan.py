"""The result of a rewriter: commands for the backend, and how their replies become the client's reply.

A rewriter is a pure function ``Request → Plan | CommandError raised``. The shell
(``proxy.reads.translate``) sends the steps, passes the replies back and applies the effects.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from catalog.namespaces import Namespace, VirtualCollection
from rewrite.profile import Profile

Document: TypeAlias = dict[str, Any]
"""A decoded document (``catalog.bson.codec.CODEC``); never changed after it was passed to another module."""

CatalogStats: TypeAlias = Callable[[Namespace | None], Mapping[str, int]]


def _no_stats(namespace: Namespace | None) -> Mapping[str, int]:
    return {}


@dataclass(frozen=True, slots=True)
class Request:
    """One client command on a virtual collection, decoded.

    ``body`` is the whole command with document sequences folded in, in the client's field order, without
    ``$db`` and without the session fields (``lsid``, ``txnNumber``, ``stmtId(s)``, ``autocommit``,
    ``startTransaction``, ``$clusterTime``, ``$readPreference``, ``apiVersion`` …): the shell attaches those
    to every step that goes over the client's own connection. ``readConcern``, ``writeConcern``,
    ``maxTimeMS`` and ``comment`` stay in ``body``. A delete, an update or a ``findAndModify`` that cannot be decoded
    as a whole without loss, or is too large to be, has ``Opaque`` documents in it and its statements are
    ``rewrite.statements.Statements``. ``target`` is ``None`` for database-wide commands.
    ``reads_buckets`` tells whether this identity may read the bucket collection itself.
    ``catalog_stats`` gives the counters and gauges of the proxy's bucket catalog under their native names
    (W80, W82): of one collection, or of all for ``None``. ``about`` says which proxy this is. ``statement_ids`` are
    the ids that the client gave its statements explicitly; without them a statement's id is its position (W102).
    """

    name: str
    namespace: Namespace
    body: Mapping[str, Any]
    target: VirtualCollection | None
    profile: Profile
    in_transaction: bool = False
    has_txn_number: bool = False
    reads_buckets: bool = True
    catalog_stats: CatalogStats = _no_stats
    about: Callable[[], Document] = dict
    statement_ids: tuple[int, ...] = ()

    def statement_id(self, index: int) -> int:
        """The id under which a retryable write records the statement at ``index`` (W102)."""
        return self.statement_ids[index] if self.statement_ids else index


class Via(Enum):
    """The connection that a step uses."""

    CLIENT = auto()
    """The client's own upstream connection, with its session and identity."""
    SERVICE = auto()
    """The proxy's account; only for what the client may do on the logical collection."""


@dataclass(frozen=True, slots=True)
class Step:
    """One backend command. ``body`` has the command name first and no ``$db``.

    With ``raw`` the reply comes as a ``RawBSONDocument``, so that documents can be stored again byte for byte.
    ``statement`` is for writes of a client that sent a ``txnNumber``: the statement id under which the backend
    records this one write (X2); all other steps outside a transaction go without the ``txnNumber``.
    ``holds_data``: it quotes what is stored, so the backend's words about it are not for the client.
    """

    database: str
    body: Mapping[str, Any]
    via: Via = Via.CLIENT
    raw: bool = False
    statement: int | None = None
    holds_data: bool = False


@dataclass(frozen=True, slots=True)
class ClearBuckets:
    """Remove all open buckets of a collection from the catalog (W72)."""

    namespace: Namespace
    bucket_ids: tuple[bytes, ...] | None = None
    """Only these buckets (12-byte ObjectIds); ``None`` means all."""


@dataclass(frozen=True, slots=True)
class ForgetNamespace:
    """The cached state of a collection is outdated: look it up before its next use.

    An empty collection name means the whole database.
    """

    namespace: Namespace


@dataclass(frozen=True, slots=True)
class DropNamespace:
    """A collection was dropped: remove its open buckets, counters and cached state (W72).

    An empty collection name means the whole database.
    """

    namespace: Namespace


Effect: TypeAlias = ClearBuckets | ForgetNamespace | DropNamespace


@dataclass(frozen=True, slots=True)
class Pause:
    """Let other clients run before a dialogue continues with expensive work."""


PAUSE: Final = Pause()


GUESS_FAILED: Final = 241
"""The error code (ConversionFailure) of a guess that finds values for which it is not valid."""


Alternative: TypeAlias = Callable[[], Step]
"""Makes the step that takes the place of a guess that failed."""


@dataclass(frozen=True, slots=True)
class Single:
    """One step; ``reshape`` maps its ``ok: 1`` reply to the client's. Errors pass through ``reshape_error``.

    ``reshape_raw`` does so without decoding, for replies that hold stored values. ``otherwise``: ``None`` for a step
    that is no guess.
    """

    step: Step
    reshape: Callable[[Document], Document] | None = None
    reshape_raw: Callable[[bytes], bytes] | None = None
    effects: tuple[Effect, ...] = ()
    reshape_error: Callable[[Document], Document] | None = None
    otherwise: Alternative | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """One step whose reply holds a cursor: batches pass raw, only ``cursor.ns`` becomes ``namespace``.

    ``otherwise``: see ``Single``.
    """

    step: Step
    namespace: Namespace
    effects: tuple[Effect, ...] = ()
    reshape_error: Callable[[Document], Document] | None = None
    otherwise: Alternative | None = None


@dataclass(frozen=True, slots=True)
class PassThrough:
    """Relay the client's command unchanged; ``effects`` follow an ``ok: 1`` reply."""

    effects: tuple[Effect, ...] = ()


StepGenerator: TypeAlias = Generator[Step | Effect | Pause, Mapping[str, Any], Document | PassThrough]


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Steps that depend on earlier replies.

    ``run()`` makes a generator that yields a ``Step``, an ``Effect`` or a ``Pause``; for a step it is sent the decoded
    reply (``ok: 0`` replies too; it may raise ``CommandError``), for the others nothing. It returns the
    client's reply, or that the command is to be relayed unchanged.
    """

    run: Callable[[], StepGenerator]


Plan: TypeAlias = Single | Cursor | Dialogue | PassThrough
Rewriter: TypeAlias = Callable[[Request], Plan]
