"""The catalog alone, driven by any sequence of calls: no I/O, an independent book beside it (W60-W72, W102, W127)."""

from __future__ import annotations

from collections.abc import Sequence

from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from catalog.bson.codec import decode, encode
from catalog.buckets.open_bucket import CollectionBuckets
from catalog.buckets.write_batch import BatchState, CombineKey, DoubtfulWriter, WriteBatch
from catalog.catalog import BucketCatalog, BucketSearch, CatalogOptions
from catalog.errors import CommandError
from catalog.identity import NOBODY
from catalog.kernel import BucketState, Limits, Measurement, parse_measurement
from catalog.namespaces import VirtualCollection
from catalog.ports import Acknowledgement
from tests.support.catalog_parts import HOUR_MS, START_MS, CountingIds, ManualClock, virtual
from tests.support.update_expressions import matches, updated
from tests.support.wanted import SCALE

MAX_COUNT = 5
ERROR = CommandError(6, "lost")


class Book:
    """One measurement of one writer: what he was told, and whether he waits for verdicts."""

    def __init__(self, *, patient: bool) -> None:
        self.patient = patient
        self.told: list[bool] = []
        self.verdicts = 0
        self.is_wanted = True

    def settle(
        self, indexes: Sequence[int], error: CommandError | None, acknowledgement: Acknowledgement | None
    ) -> None:
        assert list(indexes) == [0]
        self.told.append(error is None)

    def doubt(self, indexes: Sequence[int], error: CommandError, now_seconds: float) -> DoubtfulWriter | None:
        if self.patient:
            return self
        self.settle(indexes, error, None)
        return None

    def expire(self, now_seconds: float, error: CommandError) -> None:
        """Nobody's time is over here."""

    def lose(self, error: CommandError) -> None:
        self.settle((0,), error, None)


class CatalogMachine(RuleBasedStateMachine):
    """Stages, claims, prepares and ends batches, clears and drops; the backend is a dict of bucket documents."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.catalog = BucketCatalog(
            CatalogOptions(
                limits=Limits(max_count=MAX_COUNT, min_size_bytes=100),
                cache_share_bytes=300_000,
                memory_threshold_bytes=12_000,
                archived_per_series=2,
            ),
            self.clock,
            CountingIds(),
        )
        self.incarnation = 1
        self.virtual = virtual(uuid=1)
        self.books: dict[ObjectId, Book] = {}
        self.claimed: list[WriteBatch] = []
        self.sent: list[tuple[WriteBatch, bytes]] = []
        self.openings: list[CollectionBuckets] = []
        self.lookups: list[BucketSearch] = []
        self.documents: dict[bytes, bytes] = {}
        self.rows: dict[ObjectId, int] = {}

    # --- writers -------------------------------------------------------------------------------------------

    @rule(
        meta=st.sampled_from(("a", "b", None)),
        hour=st.integers(-3, 3),
        key=st.sampled_from((b"", b"majority")),
        text=st.booleans(),
        patient=st.booleans(),
        rows=st.integers(1, 4),
    )
    def insert(self, meta: str | None, hour: int, key: bytes, text: bool, patient: bool, rows: int) -> None:
        for _ in range(rows):
            measurement, book = self._new(meta, hour, text=text, patient=patient)
            buckets = self.catalog.collection(self.virtual)
            batch = self.catalog.place(buckets, measurement, book, 0, CombineKey(key, NOBODY))
            if batch is not None and batch.claim():
                self.claimed.append(batch)
        self._pick_up()

    def _new(self, meta: str | None, hour: int, *, text: bool, patient: bool) -> tuple[Measurement, Book]:
        identity = ObjectId()
        self.books[identity] = book = Book(patient=patient)
        document = {"_id": identity, "t": DatetimeMS(START_MS + hour * HOUR_MS), "v": "x" if text else 1}
        if meta is not None:
            document["m"] = meta
        return parse_measurement(encode(document), b"t", b"m"), book

    def _pick_up(self) -> None:
        """What the committer does with what the catalog leaves."""
        self.claimed += [batch for batch in self.catalog.take_unclaimed() if batch.claim()]
        self.claimed += [batch for batch in self.catalog.take_ready() if batch.state is BatchState.CLAIMED]
        self.openings += self.catalog.take_openings()
        self.lookups += self.catalog.take_lookups()

    # --- commits -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.claimed)
    @rule(choice=st.randoms(use_true_random=False))
    def prepare(self, choice: object) -> None:
        batch = self.claimed.pop(choice.randrange(len(self.claimed)))  # type: ignore[attr-defined]
        if batch.state is not BatchState.CLAIMED:
            return
        statement = self.catalog.prepare(batch)
        if statement is not None:
            self.sent.append((batch, statement))

    @precondition(lambda self: self.sent)
    @rule(
        choice=st.randoms(use_true_random=False),
        outcome=st.sampled_from(("applied",) * 4 + ("refused", "cleared", "doubt", "lost")),
    )
    def answer(self, choice: object, outcome: str) -> None:
        position = choice.randrange(len(self.sent))  # type: ignore[attr-defined]
        batch, statement = self.sent.pop(position)
        if outcome == "doubt" and batch.doubtful is None:
            if self.catalog.doubt(batch, ERROR):
                self.sent.append((batch, statement))
        elif outcome == "refused":
            self.catalog.abort(batch, ERROR)
        elif outcome == "lost":
            self.catalog.lose(batch, ERROR)
        elif outcome == "cleared" or not self._apply(batch, statement):
            self.catalog.replace(batch)
        else:
            self.catalog.finish([batch], Acknowledgement())
        self._pick_up()

    def _apply(self, batch: WriteBatch, statement: bytes) -> bool:
        bucket_id = batch.bucket.state.bucket_id
        collection = batch.bucket.series.collection.collection
        if collection.uuid != self.virtual.uuid:
            return False
        if batch.base == 0:
            assert bucket_id not in self.documents, "two buckets of one id"
            document = decode(statement)
        else:
            decoded = decode(statement)
            before = decode(self.documents[bucket_id]) if bucket_id in self.documents else {}
            if not matches(before, decoded["q"]):
                return False
            document = updated(before, decoded["u"])
        assert len(document["data"]["t"]) == batch.base + len(batch.measurements) <= MAX_COUNT
        self.documents[bucket_id] = encode(document)
        for measurement in batch.measurements:
            identity = ObjectId(measurement.columns[b"_id"][1:])
            self.rows[identity] = self.rows.get(identity, 0) + 1
        return True

    # --- looks ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self.openings)
    @rule(succeeds=st.booleans())
    def open(self, succeeds: bool) -> None:
        starts = [int(decode(each)["control"]["min"]["t"]) for each in self.documents.values()]
        self.catalog.opened(self.openings.pop(), max(starts, default=-(1 << 63)) if succeeds else None)
        self._pick_up()

    @precondition(lambda self: self.lookups)
    @rule(succeeds=st.booleans())
    def look_up(self, succeeds: bool) -> None:
        lookup = self.lookups.pop()
        found: dict[bytes, BucketState] = {}
        times = {series.meta: time_ms for series, time_ms in lookup.wanted}
        for document in self.documents.values():
            state = BucketState.from_document(document, b"t", b"m", HOUR_MS, self.catalog.options.limits)
            time_ms = times.get(state.meta)
            if time_ms is not None and state.start_ms <= time_ms < state.start_ms + HOUR_MS:
                found[state.meta] = state
        self.catalog.looked_up(lookup, found if succeeds else None)
        self._pick_up()

    # --- what others do ------------------------------------------------------------------------------------

    @precondition(lambda self: self.documents)
    @rule(choice=st.randoms(use_true_random=False), known=st.booleans())
    def delete_bucket(self, choice: object, known: bool) -> None:
        bucket_id = choice.choice(list(self.documents))  # type: ignore[attr-defined]
        del self.documents[bucket_id]
        if known:
            self.catalog.clear(self.virtual.namespace, [bucket_id])
        self._pick_up()

    @rule()
    def clear_all(self) -> None:
        self.catalog.clear(self.virtual.namespace)
        self._pick_up()

    @rule(known=st.booleans())
    def drop_and_create(self, known: bool) -> None:
        self.documents.clear()
        self.incarnation += 1
        self.virtual: VirtualCollection = virtual(uuid=self.incarnation)
        if known:
            self.catalog.drop(self.virtual.namespace)
        else:
            self.catalog.collection(self.virtual)
        self._pick_up()

    @rule()
    def time_passes(self) -> None:
        self.clock.now += 10

    # --- what holds at any time ----------------------------------------------------------------------------

    @invariant()
    def nobody_is_told_twice_or_too_much(self) -> None:
        for identity, book in self.books.items():
            assert len(book.told) <= 1
            if book.told == [True]:
                assert self.rows.get(identity) == 1
            assert self.rows.get(identity, 0) <= 1, "stored twice"

    @invariant()
    def one_prepared_batch_of_a_bucket(self) -> None:
        ids = [batch.bucket.state.bucket_id for batch, _ in self.sent]
        assert len(ids) == len(set(ids))
        assert all(batch.state is BatchState.PREPARED for batch, _ in self.sent)

    @invariant()
    def memory_is_what_the_known_buckets_weigh(self) -> None:
        known = [bucket for bucket in self.catalog._memory if bucket.is_known]
        gauges = self.catalog.gauges()
        assert gauges["numBuckets"] == len(known)
        assert gauges["memoryUsage"] == sum(bucket.memory_bytes for bucket in known)
        assert gauges["numIdleBuckets"] == sum(bucket.is_idle for bucket in known)
        left = [each for bucket in known for each in bucket.series.archived if each is bucket]
        assert self.catalog._memory.archived == len(left)
        for bucket in self.catalog._memory:
            assert bucket.is_known or not bucket.is_idle, "held for nothing"

    def teardown(self) -> None:
        """Whatever happened, everybody is answered once the backend answers."""
        for _ in range(10_000):
            if self.sent:
                batch, statement = self.sent.pop()
                if self._apply(batch, statement):
                    self.catalog.finish([batch], Acknowledgement())
                else:
                    self.catalog.replace(batch)
            elif self.claimed:
                batch = self.claimed.pop()
                if batch.state is BatchState.CLAIMED and (statement := self.catalog.prepare(batch)) is not None:
                    self.sent.append((batch, statement))
            elif self.openings:
                self.open(succeeds=True)
            elif self.lookups:
                self.look_up(succeeds=True)
            else:
                break
            self._pick_up()
        self.nobody_is_told_twice_or_too_much()
        for identity, book in self.books.items():
            assert len(book.told) == 1, f"{identity} waits for ever"
        self.catalog.drop_database("db")
        assert not any(self.catalog.gauges().values())
        assert list(self.catalog._memory) == []


TestCatalog = CatalogMachine.TestCase
TestCatalog.settings = settings(max_examples=max(1, int(60 * SCALE)), stateful_step_count=40, deadline=None)
