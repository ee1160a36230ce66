"""What tests of the catalog need: a clock, ids, writers that remember, measurements, a store of scripted answers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bson.datetime_ms import DatetimeMS

from catalog.bson.codec import encode
from catalog.buckets.open_bucket import CollectionBuckets
from catalog.buckets.write_batch import CombineKey, DoubtfulWriter, WriteBatch
from catalog.catalog import BucketCatalog, CatalogOptions
from catalog.commit.rows import digest_of, rows_in
from catalog.errors import CommandError, Withheld
from catalog.identity import NOBODY
from catalog.kernel import Limits, Measurement, parse_measurement
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from catalog.parts import bucket_key
from catalog.ports import (
    Acknowledgement,
    Applied,
    BulkOutcome,
    Clock,
    Confirmed,
    Found,
    IdSource,
    MaySend,
    OnOutcome,
    PreparedJoin,
    Rejected,
    Span,
    WriteConcern,
)
from tests.support.begins import Begins

KEY = CombineKey(b"", NOBODY)
ACKNOWLEDGED = Acknowledgement()
START_MS = 1_700_000_040_000
HOUR_MS = 3_600_000


class ManualClock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic_seconds(self) -> float:
        return self.now


class Later:
    """A write concern that is met, or not, when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Confirmed] = []
        self.is_gone: Callable[[], bool] = lambda: False
        """Of the last one that waits."""

    def when_known(self, tell: Confirmed, is_gone: Callable[[], bool]) -> None:
        self.waiting.append(tell)
        self.is_gone = is_gone

    def tell(self, outcome: Acknowledgement | CommandError) -> None:
        """Tell all that wait."""
        for tell in self.waiting:
            tell(outcome)


class CountingIds:
    """Room for parts behind every id."""

    def __init__(self, first: int = 0) -> None:
        """``first``: processes of one test need different ones."""
        self._first = self._count = first
        self._segment = 0

    def suffix(self) -> bytes:
        self._count += 1
        return self.segment() + self._count.to_bytes(3, "big") + bytes(3)

    def segment(self) -> bytes:
        return self._segment.to_bytes(2, "big")

    def next_segment(self) -> None:
        self._segment += 1

    def made(self, stored_id: bytes) -> bool:
        return self._first < int.from_bytes(stored_id[6:9], "big") <= self._count


class RememberingWriter:
    """Keeps what it is told, index by index."""

    def __init__(self) -> None:
        self.told: dict[int, CommandError | None] = {}
        self.acknowledgements: list[Acknowledgement | None] = []

    def settle(
        self, indexes: Sequence[int], error: CommandError | None, acknowledgement: Acknowledgement | None
    ) -> None:
        for index in indexes:
            assert index not in self.told, "told twice"
            self.told[index] = error
        self.acknowledgements.append(acknowledgement)

    def doubt(self, indexes: Sequence[int], error: CommandError, now_seconds: float) -> DoubtfulWriter | None:
        self.settle(indexes, error, None)
        return None

    def origins(self) -> Sequence[object]:
        return ()

    @property
    def codes(self) -> dict[int, int | None]:
        return {index: None if error is None else error.code for index, error in self.told.items()}


class Patient(RememberingWriter):
    """Waits for the verdict."""

    def __init__(self, *, wanted: bool) -> None:
        super().__init__()
        self.is_wanted = wanted

    def doubt(self, indexes, error, now_seconds):  # type: ignore[no-untyped-def]
        return self

    def expire(self, now_seconds: float, error: CommandError) -> None:
        pass

    def lose(self, error: CommandError) -> None:
        pass


def is_of_family(stored_id: bytes, bucket_id: bytes, prefixes: Sequence[bytes]) -> bool:
    """What ``BucketStore.fetch_family`` finds."""
    return stored_id[:9] in prefixes if prefixes else bucket_key(stored_id) == bucket_key(bucket_id)


def virtual(
    name: str = "c",
    *,
    uuid: int = 1,
    granularity: Granularity = Granularity.SECONDS,
    meta_field: str | None = "m",
    time_field: str = "t",
) -> VirtualCollection:
    options = TimeseriesOptions(
        time_field, meta_field, granularity, granularity.max_span_seconds, granularity.rounding_seconds
    )
    return VirtualCollection(Namespace("db", name), options, uuid.to_bytes(16, "big"))


def measurement(offset_ms: int = 0, meta: Any = "a", **fields: Any) -> Measurement:
    """Of ``START_MS`` plus ``offset_ms``."""
    document = {"t": DatetimeMS(START_MS + offset_ms), "m": meta, **fields}
    return parse_measurement(encode(document), b"t", b"m")


class CatalogBench:
    """A catalog with a collection and what it hangs on."""

    def __init__(
        self,
        *,
        reopening: bool = False,
        stored_until_ms: int | None = None,
        ids: IdSource | None = None,
        clock: Clock | None = None,
        **options: Any,
    ) -> None:
        self.clock: Any = clock or ManualClock()
        """Tests move it where it is a ``ManualClock``."""
        self.catalog = BucketCatalog(
            CatalogOptions(limits=options.pop("limits", Limits()), reopening=reopening, **options),
            self.clock,
            ids or CountingIds(),
        )
        self.virtual = virtual()
        self.buckets: CollectionBuckets = self.catalog.collection(self.virtual)
        if stored_until_ms is not None:
            self.buckets.stored_until_ms = stored_until_ms

    def stage(self, *measurements: Measurement, writer: RememberingWriter | None = None) -> list[WriteBatch]:
        """Each measurement under its position; returns the batches, without repetition."""
        batches: dict[WriteBatch, None] = {}
        for index, each in enumerate(measurements):
            batch = self.catalog.place(self.buckets, each, writer or RememberingWriter(), index, KEY)
            if batch is not None:
                batches[batch] = None
        return list(batches)

    def commit(self, *measurements: Measurement) -> WriteBatch:
        """Stage into one batch and let the backend acknowledge it."""
        (batch,) = self.stage(*measurements)
        batch.claim()
        assert self.catalog.prepare(batch) is not None
        self.catalog.finish([batch], ACKNOWLEDGED)
        return batch

    @property
    def open_buckets(self) -> int:
        return self.catalog.gauges()["numBuckets"]


Answer = BulkOutcome | Callable[[Sequence[bytes]], BulkOutcome]


class NothingFound:
    """A join of documents that are gone."""

    is_carried_out_by_commit = False

    def __init__(self, found: Sequence[Found | None]) -> None:
        self.found = found

    async def commit(self) -> None:
        pass

    async def abandon(self) -> None:
        pass


class ScriptedStore:
    """Answers from a script, then with success; remembers what it was sent."""

    takes_no_wait = False
    """Whether commits can be sent without a wait."""

    def __init__(self, *answers: Answer) -> None:
        self.begins = Begins()
        self.answers = deque(answers)
        self.sent: list[tuple[str, list[bytes], WriteConcern]] = []
        self.documents: dict[bytes, bytes] = {}
        self.unreadable: CommandError | None = None
        self.known: VirtualCollection | None = None
        self.until_ms = -(1 << 63)
        self.asked: list[tuple[tuple[bytes, int], ...]] = []
        self.late: set[bytes] = set()
        """Documents that are not of an earlier process' last minutes."""

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
        if not self.takes_no_wait:
            return False
        send = self.update if grows else self.insert
        return self.begins.begin(send(collection, statements, write_concern, deadline_seconds), told)

    async def insert(
        self,
        collection: VirtualCollection,
        documents: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
        may_send: MaySend | None = None,
    ) -> BulkOutcome:
        if may_send is not None and not may_send():
            return Rejected(Withheld())
        return self._answer("insert", documents, write_concern)

    async def update(
        self,
        collection: VirtualCollection,
        statements: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
        may_send: MaySend | None = None,
    ) -> BulkOutcome:
        if may_send is not None and not may_send():
            return Rejected(Withheld())
        return self._answer("update", statements, write_concern)

    def _answer(self, name: str, statements: Sequence[bytes], write_concern: WriteConcern) -> BulkOutcome:
        self.sent.append((name, list(statements), write_concern))
        if not self.answers:
            return Applied(len(statements), {}, ACKNOWLEDGED)
        answer = self.answers.popleft()
        return answer(statements) if callable(answer) else answer

    async def fetch(
        self, collection: VirtualCollection, bucket_ids: Sequence[bytes], deadline_seconds: float
    ) -> Mapping[bytes, bytes]:
        if self.unreadable is not None:
            raise self.unreadable
        return {each: self.documents[each] for each in bucket_ids if each in self.documents}

    async def stored_until_ms(self, collection: VirtualCollection, deadline_seconds: float) -> int:
        if self.unreadable is not None:
            raise self.unreadable
        return self.until_ms

    async def find_reopenable(
        self, collection: VirtualCollection, wanted: Sequence[tuple[bytes, int]], deadline_seconds: float
    ) -> Sequence[bytes]:
        self.asked.append(tuple(wanted))
        if self.unreadable is not None:
            raise self.unreadable
        return list(self.documents.values())

    async def fetch_family(
        self, collection: VirtualCollection, bucket_id: bytes, prefixes: Sequence[bytes], deadline_seconds: float
    ) -> Sequence[bytes]:
        if self.unreadable is not None:
            raise self.unreadable
        family = [each for each in self.documents if is_of_family(each, bucket_id, prefixes)]
        return [self.documents[each] for each in family if self.documents[each]]

    async def stored_rows(
        self, collection: VirtualCollection, measurements: Sequence[Measurement], deadline_seconds: float
    ) -> Mapping[bytes, int]:
        self.asked.append(tuple((each.meta, each.time_ms) for each in measurements))
        if self.unreadable is not None:
            raise self.unreadable
        return _equal(self.documents.values(), measurements)

    async def earlier_rows(
        self,
        collection: VirtualCollection,
        measurements: Sequence[Measurement],
        window_seconds: float,
        deadline_seconds: float,
        *,
        until_now: bool = False,
    ) -> Mapping[bytes, int]:
        earlier = (document for each, document in self.documents.items() if until_now or each not in self.late)
        return _equal(earlier, measurements)

    async def prepare_join(
        self, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> PreparedJoin:
        return NothingFound([None for _ in spans])

    async def find_parts(
        self, collection: VirtualCollection, since_ms: int, deadline_seconds: float
    ) -> Sequence[Sequence[bytes]]:
        return ()

    async def resolve(self, collection: VirtualCollection) -> VirtualCollection | None:
        if self.unreadable is not None:
            raise self.unreadable
        return self.known


def _equal(documents: Iterable[bytes], measurements: Sequence[Measurement]) -> Mapping[bytes, int]:
    wanted = {digest_of(each) for each in measurements}
    rows: Counter[bytes] = Counter()
    for document in documents:
        rows += rows_in(document)
    return {digest: count for digest, count in rows.items() if digest in wanted}
