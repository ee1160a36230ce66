"""The ports of the catalog: a bucket store, a clock and a source of ids.

``proxy`` implements them; the simulation tests have implementations of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from catalog.errors import CommandError
from catalog.kernel import Measurement
from catalog.namespaces import VirtualCollection
from catalog.parts import IdRange

COPIES_SECONDS = 180.0
"""How long a server may take to execute a command that it got over a connection that has ended."""

NO_FIELDS: Final[Mapping[str, Any]] = {}
"""Of a reply without any that clients get."""


# Values that are made for each commit have constructors of their own, because those that ``dataclass`` makes are not
# compiled: they take twenty times as long. Nobody changes a value.


@dataclass(init=False, slots=True, unsafe_hash=True)
class WriteConcern:
    """The effective write concern, as raw BSON so that equal ones compare equal.

    ``raw`` is the client's ``writeConcern`` document, ``b""`` when the client sent none.
    """

    raw: bytes

    def __init__(self, raw: bytes = b"") -> None:
        self.raw = raw


@dataclass(init=False, slots=True)
class Acknowledgement:
    """The reply to a successful backend command without its counts; every waiting writer gets it (W70)."""

    write_concern_error: Mapping[str, Any] | None
    fields: Mapping[str, Any]
    """``opTime``, ``electionId``, ``operationTime`` and ``$clusterTime``, if the backend sent them."""
    confirmation: Confirmation | None
    """Set if the write is stored but its write concern is still waited for."""
    sent_at_seconds: float = field(compare=False)
    """When the backend command was sent, by ``time.perf_counter``; 0 if that is not known."""
    answered_at_seconds: float = field(compare=False)
    """When its reply arrived."""
    is_confirmed: bool = field(compare=False)
    """Whether the write concern was waited for after that."""

    def __init__(
        self,
        write_concern_error: Mapping[str, Any] | None = None,
        fields: Mapping[str, Any] = NO_FIELDS,
        confirmation: Confirmation | None = None,
        sent_at_seconds: float = 0.0,
        answered_at_seconds: float = 0.0,
        *,
        is_confirmed: bool = False,
    ) -> None:
        self.write_concern_error = write_concern_error
        self.fields = fields
        self.confirmation = confirmation
        self.sent_at_seconds = sent_at_seconds
        self.answered_at_seconds = answered_at_seconds
        self.is_confirmed = is_confirmed

    @property
    def is_plain(self) -> bool:
        """Whether it has nothing but success, as the reply of a standalone."""
        return not self.fields and self.is_met

    @property
    def is_met(self) -> bool:
        """Whether the write concern is met."""
        return self.write_concern_error is None and self.confirmation is None


Confirmed: TypeAlias = Callable[[Acknowledgement | CommandError], None]
"""Called once with the result of a write concern, or an error if that cannot be known."""


class Confirmation(Protocol):
    """A stored write whose write concern is still waited for."""

    def when_known(self, tell: Confirmed, is_gone: Callable[[], bool]) -> None:
        """Call ``tell`` once, possibly immediately; never if ``is_gone`` is true by then."""
        ...


@dataclass(init=False, slots=True)
class Applied:
    """The backend replied. ``matched``: inserted or matched documents; ``errors``: by statement index."""

    matched: int
    errors: Mapping[int, CommandError]
    acknowledgement: Acknowledgement

    def __init__(self, matched: int, errors: Mapping[int, CommandError], acknowledgement: Acknowledgement) -> None:
        self.matched = matched
        self.errors = errors
        self.acknowledgement = acknowledgement


@dataclass(frozen=True, slots=True)
class Rejected:
    """The backend refused the whole command; nothing of it was applied."""

    error: CommandError


@dataclass(frozen=True, slots=True)
class Unknown:
    """The connection was lost after sending, or the reply does not say what was applied: read the stored buckets."""

    error: CommandError


BulkOutcome: TypeAlias = Applied | Rejected | Unknown
OnOutcome: TypeAlias = Callable[[BulkOutcome], None]
"""Called once with the outcome of a write. It must not raise."""


@dataclass(frozen=True, slots=True)
class Span:
    """A join to make: the documents with ids in ``ranges`` become one.

    ``merge`` makes it from the stored documents in the order of the ranges, with the id of the last of them; it may be
    called in another thread. ``unsealed``: ids of those that may be open for other writers; the others are known to be
    closed.
    """

    ranges: Sequence[IdRange]
    merge: Callable[[Sequence[bytes]], bytes]
    unsealed: Sequence[bytes]


class Found(NamedTuple):
    """What is stored of the documents of a span, some of which may have been deleted.

    ``documents``: their number; 1 if they were joined before. ``last_id``: the id of the last of them, and of the
    document that they become.
    """

    documents: int
    last_id: bytes

    @property
    def are_several(self) -> bool:
        """Whether there is anything to join."""
        return self.documents > 1


class PreparedJoin(Protocol):
    """A join that is not visible to anybody yet. It has to be committed or abandoned, once, and soon."""

    @property
    def found(self) -> Sequence[Found | None]:
        """For each span what was found of it; ``None`` if there is nothing of it any more."""
        ...

    @property
    def is_carried_out_by_commit(self) -> bool:
        """Whether ``commit`` does all of the work, so that it takes the longer, the more documents there are."""
        ...

    async def commit(self) -> None:
        """Replace the documents, all in one atomic step.

        Raises ``CommandError``; then nothing was changed, or everything if the connection was lost.
        """
        ...

    async def abandon(self) -> None:
        """Change nothing."""
        ...


MaySend: TypeAlias = Callable[[], bool]
"""Whether a command may still be sent, asked in the moment before it is; if not, the outcome is ``Rejected``.

Its error is ``Withheld`` then, or ``Fenced`` if the backend has refused to execute the command because another process
has taken over what this one had sent. Such a command may be sent again, after the same question."""


class BucketStore(Protocol):
    """Stores bucket documents. Documents and statements are encoded BSON.

    ``deadline_seconds`` is a time of ``Clock``, until which a lost backend is searched for. After it, the outcome is
    ``Rejected`` if nothing was sent, and ``Unknown`` otherwise.
    """

    def begin(
        self,
        collection: VirtualCollection,
        statements: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
        told: OnOutcome,
        *,
        grows: bool,
    ) -> bool:
        """As ``update`` if it ``grows`` buckets, otherwise as ``insert``, if the command can be sent without a wait.

        ``told`` is called in a later turn of the event loop. If the result is false, nothing was sent. Most commits are
        small, and a task and a chain of coroutines would take as long as the rest of such a commit.
        """
        ...

    async def insert(
        self,
        collection: VirtualCollection,
        documents: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
        may_send: MaySend | None = None,
    ) -> BulkOutcome:
        """One unordered ``insert`` of new buckets.

        Buckets whose meta value is an empty timestamp are not mixed with others (``catalog.commit.empty_timestamps``).
        """
        ...

    async def update(
        self,
        collection: VirtualCollection,
        statements: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
        may_send: MaySend | None = None,
    ) -> BulkOutcome:
        """One unordered bulk ``update``; each statement is an encoded ``{q, u}``."""
        ...

    async def fetch(
        self, collection: VirtualCollection, bucket_ids: Sequence[bytes], deadline_seconds: float
    ) -> Mapping[bytes, bytes]:
        """The stored documents of these buckets by id, read from the primary; raises ``CommandError``."""
        ...

    async def stored_until_ms(self, collection: VirtualCollection, deadline_seconds: float) -> int:
        """The latest ``control.min.<time>`` of the stored buckets, -2**63 without any; raises ``CommandError``."""
        ...

    async def find_reopenable(
        self, collection: VirtualCollection, wanted: Sequence[tuple[bytes, int]], deadline_seconds: float
    ) -> Sequence[bytes]:
        """Buckets that may accept a measurement of ``wanted`` (meta element, time in ms) (W50).

        Raises ``CommandError``.
        """
        ...

    async def fetch_family(
        self, collection: VirtualCollection, bucket_id: bytes, prefixes: Sequence[bytes], deadline_seconds: float
    ) -> Sequence[bytes]:
        """The stored bucket and its parts, whose ids begin with one of ``prefixes``; raises ``CommandError``.

        Without prefixes, its segments are not known: all that it may have are searched.
        """
        ...

    async def stored_rows(
        self, collection: VirtualCollection, measurements: Sequence[Measurement], deadline_seconds: float
    ) -> Mapping[bytes, int]:
        """The number of stored rows that equal each of these measurements, by ``catalog.commit.rows.digest_of`` (W102).

        Searches all buckets, also full, closed and compressed ones; raises ``CommandError``.
        """
        ...

    async def earlier_rows(
        self,
        collection: VirtualCollection,
        measurements: Sequence[Measurement],
        window_seconds: float,
        deadline_seconds: float,
        *,
        until_now: bool = False,
    ) -> Mapping[bytes, int]:
        """As ``stored_rows``, but only rows that were stored before this process wrote anything.

        If the backend can tell, rows that were stored ``window_seconds`` before that do not count either.
        ``until_now``: rows of any process that were stored until now count.
        """
        ...

    async def prepare_join(
        self, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> PreparedJoin:
        """Read the documents of each span and make the new ones, to be joined in one atomic step.

        Raises ``CommandError`` (112 if another writer was detected) or ``ValueError`` (from ``merge``, or because they
        are too large for one step).
        """
        ...

    async def find_parts(
        self, collection: VirtualCollection, since_ms: int, deadline_seconds: float
    ) -> Sequence[Sequence[bytes]]:
        """Ids, in their order, of stored buckets that may be parts of one and start at ``since_ms`` or later.

        Raises ``CommandError``.
        """
        ...

    async def resolve(self, collection: VirtualCollection) -> VirtualCollection | None:
        """The collection that has this name now, from the backend; raises ``CommandError``."""
        ...


class Clock(Protocol):
    """Monotonic time."""

    def monotonic_seconds(self) -> float:
        """Seconds from an arbitrary origin, never going back."""
        ...


class IdSource(Protocol):
    """Makes unique bucket ids of segment, place and counter (``catalog.parts``)."""

    def suffix(self) -> bytes:
        """The current segment, a new place, and a zero counter: eight bytes that are unique in this process (W11).

        They are almost certainly unique in all processes.
        """
        ...

    def segment(self) -> bytes:
        """The current segment, two bytes."""
        ...

    def next_segment(self) -> None:
        """Begin another segment."""
        ...

    def made(self, stored_id: bytes) -> bool:
        """Whether this id has a segment and a place of this process, as those of its buckets and their parts do."""
        ...
