"""What the catalog needs of the world outside: a place to put buckets, a clock, ids.

Adapters live in ``proxy``; the simulation tests bring scripted ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from catalog.errors import CommandError
from catalog.kernel import Measurement
from catalog.namespaces import VirtualCollection

COPIES_SECONDS = 180.0
"""For how long a server may hold a command that it got over a connection that ended."""


@dataclass(frozen=True, slots=True)
class WriteConcern:
    """The effective write concern, as raw BSON so that equal ones compare equal.

    ``raw`` is the client's ``writeConcern`` document, ``b""`` when the client sent none.
    """

    raw: bytes = b""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What a successful backend command said besides its counts; every waiting writer gets it (W70)."""

    write_concern_error: Mapping[str, Any] | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    """``opTime``, ``electionId``, ``operationTime``, ``$clusterTime`` where the backend sent them."""
    confirmation: Confirmation | None = None
    """What clients wait for besides: the write is stored, but not yet where its write concern wants it."""

    @property
    def is_plain(self) -> bool:
        """Whether it says nothing but that all went well, as that of a standalone does."""
        return not self.fields and self.is_met

    @property
    def is_met(self) -> bool:
        """Whether nothing is missing for the write concern."""
        return self.write_concern_error is None and self.confirmation is None


Confirmed: TypeAlias = Callable[[Acknowledgement | CommandError], None]
"""Told once whether a write concern was met, or that nobody can know."""


class Confirmation(Protocol):
    """A write that is stored, and not yet where its write concern wants it."""

    def when_known(self, tell: Confirmed, is_gone: Callable[[], bool]) -> None:
        """Call ``tell`` once, perhaps at once, or never for one that ``is_gone``."""
        ...


@dataclass(frozen=True, slots=True)
class Applied:
    """The backend answered. ``matched`` counts inserted or matched documents; ``errors`` is by statement index."""

    matched: int
    errors: Mapping[int, CommandError]
    acknowledgement: Acknowledgement


@dataclass(frozen=True, slots=True)
class Rejected:
    """The backend refused the whole command; nothing of it was applied."""

    error: CommandError


@dataclass(frozen=True, slots=True)
class Unknown:
    """The connection died after sending, or the answer leaves open what was applied: find out by looking."""

    error: CommandError


BulkOutcome: TypeAlias = Applied | Rejected | Unknown


@dataclass(frozen=True, slots=True)
class Span:
    """The documents with ids ``first_id`` … ``last_id``, about ``count``, are to become one with the id ``last_id``.

    ``merge`` makes it, of the stored documents in the order of their ids; it may be called in another thread.
    """

    first_id: bytes
    last_id: bytes
    count: int
    merge: Callable[[Sequence[bytes]], bytes]


class BucketStore(Protocol):
    """Where bucket documents live. Documents and statements are encoded BSON.

    ``deadline_seconds`` is a time of ``Clock``: until then a lost backend is sought; after it the answer is
    ``Rejected`` when nothing was sent, ``Unknown`` when something was.
    """

    async def insert(
        self,
        collection: VirtualCollection,
        documents: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
    ) -> BulkOutcome:
        """One unordered ``insert`` of new buckets.

        Buckets whose meta value is an empty timestamp come without others (``catalog.empty_timestamps``).
        """
        ...

    async def update(
        self,
        collection: VirtualCollection,
        statements: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
    ) -> BulkOutcome:
        """One unordered bulk ``update``; each statement is an encoded ``{q, u}``."""
        ...

    async def fetch(
        self, collection: VirtualCollection, bucket_ids: Sequence[bytes], deadline_seconds: float
    ) -> Mapping[bytes, bytes]:
        """The stored documents of these buckets by id, read from the primary; raises ``CommandError``."""
        ...

    async def stored_until_ms(self, collection: VirtualCollection, deadline_seconds: float) -> int:
        """The latest ``control.min.<time>`` of any stored bucket, very small without any; raises ``CommandError``."""
        ...

    async def find_reopenable(
        self, collection: VirtualCollection, wanted: Sequence[tuple[bytes, int]], deadline_seconds: float
    ) -> Sequence[bytes]:
        """Bucket documents that may take a measurement of (meta element, time in ms) (W50); raises ``CommandError``."""
        ...

    async def fetch_family(
        self, collection: VirtualCollection, bucket_id: bytes, deadline_seconds: float
    ) -> Sequence[bytes]:
        """The stored bucket and its parts: documents whose ids begin as this one's; raises ``CommandError``."""
        ...

    async def stored_rows(
        self, collection: VirtualCollection, measurements: Sequence[Measurement], deadline_seconds: float
    ) -> Mapping[bytes, int]:
        """How many rows are stored that equal these measurements, by ``catalog.rows.digest_of`` (W102).

        Of all buckets, full, closed and compressed ones too; raises ``CommandError``.
        """
        ...

    async def earlier_rows(
        self,
        collection: VirtualCollection,
        measurements: Sequence[Measurement],
        window_seconds: float,
        deadline_seconds: float,
    ) -> Mapping[bytes, int]:
        """As ``stored_rows``, but only what was written before this process wrote anything.

        Where the backend can tell, what was there ``window_seconds`` before that is left out, too.
        """
        ...

    async def join(
        self, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> Sequence[int | None]:
        """Join the documents of each span, all of them in one atomic step; ``spans`` in the order of their ids.

        Returns for each how many there were (1: only the last one, so they were joined before), ``None`` when there
        is none with the id ``last_id``, and nothing was changed. Raises ``CommandError`` (112 when another writer was
        noticed) or ``ValueError`` (from ``merge``, or when they are too large or too far apart for one step), with
        nothing changed or, after a lost connection, all of it.
        """
        ...

    async def find_parts(
        self, collection: VirtualCollection, since_ms: int, deadline_seconds: float
    ) -> Sequence[tuple[bytes, bytes]]:
        """First and last ids of stored buckets that may be parts of one and start at ``since_ms`` or later.

        Raises ``CommandError``.
        """
        ...

    async def resolve(self, collection: VirtualCollection) -> VirtualCollection | None:
        """What the name stands for now, asked anew; raises ``CommandError``."""
        ...


class Clock(Protocol):
    """Monotonic time."""

    def monotonic_seconds(self) -> float:
        """Seconds from an arbitrary origin, never going back."""
        ...


class IdSource(Protocol):
    """Unique bucket ids. The last three bytes are zero: the ids behind are for parts (``catalog.parts``)."""

    def suffix(self) -> bytes:
        """Eight bytes, never the same twice in a process, improbable to be another process's (W11)."""
        ...
