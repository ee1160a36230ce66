"""What other processes left in parts is joined later, and only when they did not do it themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from catalog.background.orphan_parts import (
    ATTEMPTS,
    GONE_SECONDS,
    GROUP_PARTS,
    PASS_SECONDS,
    PATIENCE_SECONDS,
    PAUSE_SECONDS,
    SWEPT_SPANS,
    OrphanParts,
)
from catalog.errors import BackendUnavailable, CommandError
from catalog.growth.growth import GrowthOptions
from catalog.namespaces import Namespace, VirtualCollection
from catalog.parts import IdRange, join
from catalog.ports import COPIES_SECONDS, Found, PreparedJoin, Span
from tests.support.catalog_parts import KEY, CatalogBench, ManualClock, RememberingWriter, measurement, virtual
from tests.support.joining_bench import Nobody, RememberedJoin, RememberingStore

IDS = [b"fourS%cplc\0\0%c" % position for position in ((0, 0), (0, 4), (0, 5), (1, 0), (3, 2), (3, 3))]
"""A bucket and its parts, in three segments."""


class LeftStore(RememberingStore):
    """Holds parts of somebody else."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.seconds = 0.0
        """The time that a commit takes."""
        self.steps_committed = 0
        self.looks = 0
        self.unreachable = False
        self.error: Exception | None = None
        self.prepares = False
        """Whether the error comes when a join is committed."""
        self.found: list[list[bytes]] = [IDS]
        self.documents = dict.fromkeys(IDS, b"")

    async def find_parts(
        self, collection: VirtualCollection, since_ms: int, deadline_seconds: float
    ) -> list[list[bytes]]:
        self.looks += 1
        if self.unreachable:
            raise BackendUnavailable("gone")
        return self.found

    async def prepare_join(
        self, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> PreparedJoin:
        if self.error is not None and not self.prepares:
            raise self.error
        prepared = await super().prepare_join(collection, spans, deadline_seconds)
        assert isinstance(prepared, RememberedJoin)
        ranges = [[(each.first_id, each.last_id) for each in span.ranges] for span in spans]
        stored = [[each for first, last in some for each in self.documents if first <= each <= last] for some in ranges]
        prepared.found = [Found(len(ids), ids[-1]) if ids else None for ids in stored]
        return prepared

    async def committing(self, spans: Sequence[Span]) -> None:
        if self.error is not None:
            raise self.error
        self.steps_committed += 1
        self.clock.now += self.seconds


class Somebody:
    """A reader is always under way."""

    @asynccontextmanager
    async def kept_out(self, namespace: Namespace) -> AsyncIterator[bool]:
        yield False

    still_kept_out = True


def readers_of(database: str) -> Any:
    """Readers of this database are always under way, of others never."""

    class Readers:
        still_kept_out = True

        @asynccontextmanager
        async def kept_out(self, namespace: Namespace) -> AsyncIterator[bool]:
            yield namespace.database != database

    return Readers()


class SweptBench(CatalogBench):
    """A process that writes to a collection in which another one has left parts."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.store = LeftStore(self.clock)
        self.readers = Nobody()
        self.refused: list[CommandError] = []
        self.noticed: list[Exception] = []
        self.orphans = OrphanParts(
            self.catalog,
            self.store,
            self.clock,
            self.readers,
            lambda buckets: join,
            self.refused.append,
            self.noticed.append,
        )
        self.buckets.stored_until_ms = 0
        self.store.until_ms = SWEPT_SPANS * self.buckets.span_ms
        self.stage(measurement())


async def test_parts_of_others_wait_until_no_copy_can_come() -> None:
    bench = SweptBench()
    await bench.orphans.sweep()
    bench.clock.now += COPIES_SECONDS - 1
    assert await bench.orphans.sweep() == 0
    bench.clock.now += 1
    assert await bench.orphans.sweep() == len(IDS)
    assert bench.store.joins == [(IDS[0], IDS[-1])]
    assert bench.store.looks == 1


async def test_parts_of_all_segments_become_one_document() -> None:
    """The ids of those in one segment are a range; what else lies between the segments is very much."""
    bench = SweptBench()
    await bench.orphans.sweep()
    bench.clock.now += COPIES_SECONDS
    await bench.orphans.sweep()
    (span,) = bench.store.spans
    assert list(span.ranges) == [
        IdRange(IDS[0], IDS[2], 3),
        IdRange(IDS[3], IDS[3], 1),
        IdRange(IDS[4], IDS[5], 2),
    ]
    assert list(span.unsealed) == IDS[:1]


async def test_buckets_of_servers_are_no_parts() -> None:
    """The ids of a server that has stored several buckets of a series with one start look like those of parts."""
    bench = SweptBench()
    bench.store.found = [[IDS[0][:9] + (0xFF_0000 + each).to_bytes(3, "big") for each in range(2)]]
    bench.store.documents = dict.fromkeys(bench.store.found[0], b"")
    await bench.orphans.sweep()
    bench.clock.now += COPIES_SECONDS
    assert await bench.orphans.sweep() == 0
    assert bench.store.joins == []


async def test_parts_that_this_process_may_still_add_to_are_its_own() -> None:
    """In whatever segment they lie."""
    bench = SweptBench(growth=GrowthOptions(in_parts=True, batches_in_round=1, rows_in_place=1, segment_parts=1))
    bench.commit(measurement())
    bench.store.found = [[bench.commit(measurement(second)).stored_id for second in (1, 2)]]
    bench.store.documents = dict.fromkeys(bench.store.found[0], b"")
    await bench.orphans.sweep()
    bench.clock.now += COPIES_SECONDS
    assert await bench.orphans.sweep() == 0
    assert bench.store.joins == []


@pytest.mark.parametrize("joined", [True, False])
async def test_parts_that_their_writer_has_joined_are_not_joined_again(joined: bool) -> None:
    bench = SweptBench()
    await bench.orphans.sweep()
    if joined:
        bench.store.documents = {IDS[-1]: b""}
    bench.clock.now += COPIES_SECONDS
    assert await bench.orphans.sweep() == (0 if joined else len(IDS))
    assert bench.store.open == 0


def _families(buckets: int, parts: int = 2, start: bytes = b"four") -> list[list[bytes]]:
    """Parts of neighbours, in one segment."""
    places = [start + b"S\0" + place.to_bytes(3, "big") for place in range(buckets)]
    return [[place + counter.to_bytes(3, "big") for counter in range(parts)] for place in places]


class LeavingBench(SweptBench):
    """Somebody has left the parts of many buckets, for long enough."""

    async def leave(self, families: list[list[bytes]]) -> None:
        self.store.found = families
        self.store.documents = {identity: b"" for family in families for identity in family}
        await self.orphans.sweep()
        self.clock.now += COPIES_SECONDS


async def test_neighbours_are_joined_in_one_step() -> None:
    bench = LeavingBench()
    families = _families(100) + _families(50, start=b"fivE")
    await bench.leave(families[::-1])
    assert await bench.orphans.sweep() == 300
    assert sorted(bench.store.joins) == sorted((first, last) for first, last in families)
    assert bench.store.steps_committed == 2


async def test_a_step_is_limited_and_so_is_a_pass() -> None:
    bench = LeavingBench()
    await bench.leave(_families(GROUP_PARTS * 2))
    bench.store.seconds = 0.6 * PASS_SECONDS
    assert await bench.orphans.sweep() == 2 * GROUP_PARTS
    assert bench.store.steps_committed == 2
    assert await bench.orphans.sweep() == 2 * GROUP_PARTS
    assert await bench.orphans.sweep() == 0


async def test_what_cannot_be_joined_does_not_keep_its_neighbours_from_it() -> None:
    bench = LeavingBench()
    families = _families(5)
    await bench.leave(families)
    bench.store.refuses = families[3][0]
    assert await bench.orphans.sweep() == 8
    assert sorted(bench.store.joins) == [(first, last) for first, last in families if first != families[3][0]]
    bench.store.refuses = None
    assert await bench.orphans.sweep() == 0


async def test_readers_under_way_are_not_disturbed() -> None:
    bench = SweptBench()
    bench.orphans = OrphanParts(
        bench.catalog, bench.store, bench.clock, Somebody(), lambda *_: join, bench.refused.append, bench.noticed.append
    )
    await bench.orphans.sweep()
    bench.clock.now += COPIES_SECONDS
    assert await bench.orphans.sweep() == 0
    assert bench.store.joins == []


@pytest.mark.parametrize(
    ("error", "refused", "again"),
    [
        (CommandError(112, "held by a transaction"), 0, True),
        (CommandError(13, "not authorized"), 1, False),
        (CommandError(26, "gone"), 0, False),
        (BackendUnavailable("gone"), 0, True),
    ],
)
@pytest.mark.parametrize("prepares", [False, True], ids=["it is prepared", "it is committed"])
async def test_what_cannot_be_joined_is_tried_again_only_where_that_may_help(
    error: CommandError, refused: int, again: bool, prepares: bool
) -> None:
    bench = SweptBench()
    bench.store.error, bench.store.prepares = error, prepares
    await bench.orphans.sweep()
    bench.clock.now += COPIES_SECONDS
    assert await bench.orphans.sweep() == 0
    bench.store.error = None
    bench.clock.now += PAUSE_SECONDS
    assert await bench.orphans.sweep() == (len(IDS) if again else 0)
    assert (len(bench.refused), len(bench.store.joins)) == (refused, int(again))
    assert bench.noticed == []
    assert bench.store.open == 0


@pytest.mark.parametrize("prepares", [False, True], ids=["it is prepared", "it is committed"])
async def test_an_error_of_our_own_is_told_and_the_parts_stay(prepares: bool) -> None:
    bench = SweptBench()
    bench.store.error, bench.store.prepares = TypeError("a bug"), prepares
    await bench.orphans.sweep()
    bench.clock.now += COPIES_SECONDS
    assert await bench.orphans.sweep() == 0
    assert bench.noticed == [bench.store.error]
    bench.store.error = None
    bench.clock.now += PAUSE_SECONDS
    assert await bench.orphans.sweep() == 0


async def test_readers_of_one_database_do_not_keep_parts_of_another_from_being_joined() -> None:
    bench = SweptBench()
    other = bench.catalog.collection(replace(virtual("ts2", uuid=2), namespace=Namespace("other", "ts2")))
    bench.orphans = OrphanParts(
        bench.catalog,
        bench.store,
        bench.clock,
        readers_of("db"),
        lambda *_: join,
        bench.refused.append,
        bench.noticed.append,
    )
    other.stored_until_ms = 0
    bench.catalog.place(other, measurement(), RememberingWriter(), 0, KEY)
    for _ in range(3):
        await bench.orphans.sweep()
    bench.clock.now += COPIES_SECONDS
    joined = [await bench.orphans.sweep() for _ in range(3)]
    assert sum(joined) == len(IDS)
    assert (bench.store.abandoned, bench.store.open) == (1, 0)


async def test_what_is_prepared_when_readers_no_longer_wait_is_given_up_and_tried_again() -> None:
    """This process may have been stopped after it had told them to wait."""
    bench = SweptBench()
    await bench.orphans.sweep()
    bench.clock.now += COPIES_SECONDS
    bench.readers.still_kept_out = False
    assert await bench.orphans.sweep() == 0
    assert (bench.store.joins, bench.store.abandoned, bench.store.open) == ([], 1, 0)
    bench.readers.still_kept_out = True
    bench.clock.now += PAUSE_SECONDS
    assert await bench.orphans.sweep() == len(IDS)


async def test_a_backend_that_was_away_is_looked_at_again() -> None:
    bench = SweptBench()
    bench.store.unreachable = True
    await bench.orphans.sweep()
    bench.store.unreachable = False
    await bench.orphans.sweep()
    assert bench.store.looks == 1
    bench.clock.now += PATIENCE_SECONDS
    await bench.orphans.sweep()
    assert bench.store.looks == 2


class Gone:
    """The makers of these ids are gone, those of others are not."""

    def __init__(self, *ids: bytes) -> None:
        self.ids = ids
        self.departures = 0
        self.looks = 0
        self.looked = 1

    def has_looked_since(self, looks: int) -> bool:
        return self.looked > looks

    def has_gone(self, stored_id: bytes) -> bool:
        return stored_id in self.ids


async def test_parts_of_who_is_certainly_gone_are_joined_soon_and_others_later() -> None:
    bench = SweptBench()
    families = _families(3)
    bench.store.found = families
    bench.store.documents = {identity: b"" for family in families for identity in family}
    bench.orphans.link(Gone(families[0][0], families[2][0]))
    await bench.orphans.sweep()
    bench.clock.now += GONE_SECONDS - 1
    assert await bench.orphans.sweep() == 0
    bench.clock.now += 1
    assert await bench.orphans.sweep() == 4
    assert sorted(bench.store.joins) == [(first, last) for first, last in (families[0], families[2])]
    bench.clock.now += COPIES_SECONDS - GONE_SECONDS - 1
    assert await bench.orphans.sweep() == 0
    bench.clock.now += 1
    assert await bench.orphans.sweep() == 2


async def test_who_goes_later_is_searched_for_again() -> None:
    """What is already known of another one waits as it did."""
    bench = SweptBench()
    one, two = _families(2)
    bench.store.found = [one]
    bench.store.documents = dict.fromkeys((*one, *two), b"")
    await bench.orphans.sweep()
    bench.clock.now += GONE_SECONDS
    await bench.orphans.sweep()
    bench.store.found = [one, two]
    gone = Gone(two[0])
    bench.orphans.link(gone)
    gone.departures = 1
    await bench.orphans.sweep()
    bench.clock.now += GONE_SECONDS
    assert await bench.orphans.sweep() == 2
    assert bench.store.joins == [(two[0], two[-1])]
    bench.clock.now += COPIES_SECONDS - 2 * GONE_SECONDS
    assert await bench.orphans.sweep() == 2
    assert bench.store.joins[1:] == [(one[0], one[-1])]
    bench.clock.now += COPIES_SECONDS
    assert await bench.orphans.sweep() == 0


async def test_what_waits_is_looked_at_again_when_another_process_has_gone() -> None:
    bench = SweptBench()
    (one,) = bench.store.found = _families(1)
    bench.store.documents = dict.fromkeys(one, b"")
    gone = Gone()
    bench.orphans.link(gone)
    await bench.orphans.sweep()
    bench.clock.now += GONE_SECONDS
    assert await bench.orphans.sweep() == 0
    gone.ids, gone.departures = (one[0],), 1
    assert await bench.orphans.sweep() == 2


async def test_who_was_looked_for_before_parts_were_found_may_have_come_since() -> None:
    bench = SweptBench()
    (one,) = bench.store.found = _families(1)
    bench.store.documents = dict.fromkeys(one, b"")
    gone = Gone(one[0])
    bench.orphans.link(gone)
    gone.looks = 1
    await bench.orphans.sweep()
    bench.clock.now += 2 * GONE_SECONDS
    assert await bench.orphans.sweep() == 0
    gone.looked = 2
    assert await bench.orphans.sweep() == 2


async def test_without_anything_to_join_no_reader_waits() -> None:
    bench = SweptBench()
    bench.store.documents = {IDS[-1]: b""}
    await bench.orphans.sweep()
    bench.clock.now += COPIES_SECONDS
    bench.readers.still_kept_out = False
    assert await bench.orphans.sweep() == 0
    assert (bench.store.abandoned, bench.store.open) == (1, 0)
    bench.clock.now += PAUSE_SECONDS
    await bench.orphans.sweep()
    assert bench.store.steps == 1


async def test_what_fails_for_a_while_is_not_forgotten() -> None:
    """For example while there is no primary."""
    bench = SweptBench()
    await bench.orphans.sweep()
    bench.clock.now += COPIES_SECONDS
    bench.store.error = CommandError(10107, "not primary")
    for _ in range(ATTEMPTS):
        assert await bench.orphans.sweep() == 0
        assert await bench.orphans.sweep() == 0, "not at once"
        bench.clock.now += PAUSE_SECONDS
    bench.store.error = None
    assert await bench.orphans.sweep() == len(IDS)


async def test_what_always_fails_is_left_as_it_is() -> None:
    bench = SweptBench()
    await bench.orphans.sweep()
    bench.clock.now += COPIES_SECONDS
    bench.store.error = CommandError(10107, "not primary")
    for _ in range(ATTEMPTS + 1):
        await bench.orphans.sweep()
        bench.clock.now += PAUSE_SECONDS
    bench.store.error = None
    assert await bench.orphans.sweep() == 0


async def test_too_much_for_the_backend_is_tried_in_halves() -> None:
    bench = LeavingBench()
    await bench.leave(_families(4))
    bench.store.error = BackendUnavailable("gone")
    await bench.orphans.sweep()
    bench.store.error = None
    bench.clock.now += PAUSE_SECONDS
    assert await bench.orphans.sweep() == 8
    assert bench.store.steps_committed == 2
