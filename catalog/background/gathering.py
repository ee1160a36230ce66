"""Gathers what several processes have written of one series, so that it becomes one bucket as with one process.

Under load, each process writes buckets of its own. When they rest (``catalog.buckets.resting``), each process tells one
of them of its buckets: the one that *gathers*. It finds those that belong together (``catalog.background.families``),
asks the owners of all but the first of them to give theirs up, and orders the owner of the first to *absorb* those: its
document gets their rows, in one transaction and in a moment without readers, as with joins of parts
(``catalog.background.joining``).

A bucket that was given up is nobody's: it is only stored, as after a restart. So if anything fails after that, it stays
as it is, and nothing is lost. The owner that absorbs goes on with its bucket.

Standalones have no transactions; what takes their place closes the documents first (``proxy.backend.parts``), for ever
if it fails. So there, each process keeps its buckets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from catalog.background.absorbing import Absorbing, Order
from catalog.background.families import Bounds, Families, Family
from catalog.buckets.resting import LOOKED_AT_ONCE, Given, Rested
from catalog.catalog import BucketCatalog
from catalog.errors import InvariantViolated
from catalog.ports import Clock

LOOK_SECONDS: Final = 0.5
"""Interval at which this process reports its resting buckets, and gathers those of others."""
PIECES: Final = 8
"""Maximum number of pieces of one report; between them, the event loop goes on."""
MOST_GIVEN_UP: Final = 500
"""Maximum number of buckets given up at once, for the same reason; the others stay as they are."""


class GatheringPeers(Protocol):
    """The other processes."""

    @property
    def series_key(self) -> bytes:
        """The key with which all of them digest series (``Rested``)."""
        ...

    def gatherer(self) -> str | None:
        """The name of the process that gathers; ``""`` if it is this one, ``None`` if there is no other."""
        ...

    def tell(self, name: str, rested: Sequence[Rested]) -> None:
        """Tell that process of buckets of this one."""
        ...

    async def give_up(self, wanted: Mapping[str, Sequence[bytes]]) -> list[Given]:
        """Ask the processes with these names to give these buckets up; those that they have given up.

        A process that cannot be asked gives up none.
        """
        ...

    def order(self, name: str, orders: Sequence[Order]) -> None:
        """Order that process to absorb."""
        ...


class Alone:
    """Where other processes cannot be known; implements ``GatheringPeers``."""

    series_key: Final = b""

    def gatherer(self) -> str | None:
        return None

    def tell(self, name: str, rested: Sequence[Rested]) -> None:
        raise InvariantViolated("there is nobody to tell")

    async def give_up(self, wanted: Mapping[str, Sequence[bytes]]) -> list[Given]:
        raise InvariantViolated("there is nobody to ask")

    def order(self, name: str, orders: Sequence[Order]) -> None:
        raise InvariantViolated("there is nobody to order")


class Gathering:
    """This process's side of gathering: reports, collects, gives up and absorbs buckets."""

    def __init__(self, catalog: BucketCatalog, clock: Clock, absorbing: Absorbing) -> None:
        self._company: GatheringPeers = Alone()
        self.given_up = 0
        """The number of buckets of this process that others got."""
        self._catalog = catalog
        self._clock = clock
        self._absorbing = absorbing
        self._families = Families()
        self._gatherer: str | None = None
        self._looked_seconds = 0.0

    @property
    def absorbed(self) -> int:
        """The number of buckets of others whose rows were added to those of this process."""
        return self._absorbing.absorbed

    def link(self, company: GatheringPeers) -> None:
        """Gather with these from now on."""
        self._company = company

    # --- the background task -------------------------------------------------------------------------------

    async def look(self) -> None:
        """One pass."""
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds >= self._looked_seconds + LOOK_SECONDS:
            self._looked_seconds = now_seconds
            self._follow_gatherer()
            if self._gatherer is not None:
                await self._tell(self._gatherer, now_seconds)
            if self._gatherer == "":
                await self._gather(now_seconds)
        await self._absorbing.work()

    def _current(self) -> str | None:
        """The process that gathers now; ``None`` also while buckets could not be joined."""
        growth = self._catalog.growth
        return None if growth.is_sealed or growth.obstacles.are_everywhere else self._company.gatherer()

    def _follow_gatherer(self) -> None:
        resting, gatherer = self._catalog.growth.resting, self._current()
        if gatherer != self._gatherer:
            self._gatherer = gatherer
            if gatherer != "":
                self._families.forget_all()
            resting.tell_again()
        if gatherer is None:
            resting.forget_all()

    async def _tell(self, gatherer: str, now_seconds: float) -> None:
        growth = self._catalog.growth
        for piece in range(min(PIECES, 1 + growth.resting.untold // LOOKED_AT_ONCE)):
            if piece:
                await asyncio.sleep(0)
            rested = growth.rested(now_seconds, self._company.series_key)
            if not gatherer:
                self._families.told("", rested, now_seconds)
            elif rested:
                self._company.tell(gatherer, rested)

    async def _gather(self, now_seconds: float) -> None:
        """Have families become one bucket each."""
        if not self._families.is_due(now_seconds):
            return
        limits = self._catalog.options.limits
        known = {
            buckets.collection.uuid: Bounds(buckets.span_ms // 1000, limits.max_count, limits.max_size_bytes)
            for buckets in self._catalog.collections()
        }
        for piece in range(PIECES):
            if piece:
                await asyncio.sleep(0)
            await self._gather_some(self._families.due(now_seconds, known.get))
            if not self._families.is_due(now_seconds):
                break

    async def _gather_some(self, families: Sequence[Family]) -> None:
        wanted: dict[str, list[bytes]] = {}
        for family in families:
            for owner, stored_id in family.others:
                wanted.setdefault(owner, []).append(stored_id)
        given = self.give_up(wanted.pop("", ()))
        if wanted:
            given += await self._company.give_up(wanted)
        rows = {each.stored_id: each for each in given}
        orders: dict[str, list[Order]] = {}
        for family in families:
            if others := _later_first(family, rows):
                orders.setdefault(family.owner, []).append(Order(family.stored_id, others))
        self.ordered(orders.pop("", ()))
        for owner, each in orders.items():
            self._company.order(owner, each)

    # --- other processes call ------------------------------------------------------------------------------

    def told(self, name: str, rested: Sequence[Rested]) -> None:
        """That process has told of its buckets."""
        if self._current() == "":
            self._families.told(name, rested, self._clock.monotonic_seconds())

    def give_up(self, ids: Sequence[bytes]) -> list[Given]:
        """Give up the buckets that are these documents, if they rest, at most ``MOST_GIVEN_UP``; returns those."""
        resting, now_seconds = self._catalog.growth.resting, self._clock.monotonic_seconds()
        given: list[Given] = []
        for stored_id in ids[:MOST_GIVEN_UP]:
            bucket = resting.bucket(stored_id, now_seconds)
            if bucket is not None:
                given.append(Given(stored_id, bucket.state.rows))
                self._catalog.give_up(bucket)
                resting.forget(stored_id)
        self.given_up += len(given)
        return given

    def ordered(self, orders: Sequence[Order]) -> None:
        """Absorb these as soon as possible."""
        self._absorbing.ordered(orders)


def _later_first(family: Family, given: Mapping[bytes, Given]) -> list[Given]:
    """Those that were given up; the document that keeps its id, and so its start, comes last."""
    return sorted((given[stored_id] for _, stored_id in family.others if stored_id in given), reverse=True)
