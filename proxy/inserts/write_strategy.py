"""Decides which inserts go through the catalog, and which the server carries out itself.

The shared catalog is much cheaper for small inserts of many clients, and keeps late measurements together. A client
that sends large batches in order does most of that work itself: its insert can be cheaper as a native one, which is
relayed as it came. Which way is cheaper depends on documents, buckets and server, so it is measured: by collection and
size of the insert, how many bytes a second are stored while there are such inserts. What the catalog puts off counts as
well: parts, which are joined later. From time to time the other way is tried for a moment, ever more rarely while the
result stays the same. Native inserts put nothing off, so they are also tried as soon as the catalog seems expensive.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, Literal, Protocol

from catalog.bounded import BoundedCache
from catalog.namespaces import Namespace, VirtualCollection
from proxy.request.exchange import Exchange, Meter

FEWEST_BYTES: Final = 768
"""Smaller inserts always go through the catalog, which combines them with those of other clients."""
PERIOD_SECONDS: Final = 0.25
"""The least time with inserts in progress that a measured period has."""
PERIOD_INSERTS: Final = 8
"""The least number of inserts in a measured period."""
PUT_OFF_SECONDS: Final = 0.1
"""A period ends earlier if it has put off as much as this."""
FIRST_TRY_SECONDS: Final = 0.5
"""How long after the first insert of a kind the other way is tried at the earliest; a short load is not worth it."""
FIRST_PAUSE_SECONDS: Final = 2.0
LONGEST_PAUSE_SECONDS: Final = 128.0
"""Limits of the time between two tries of the other way."""
SHORTEST_PAUSE_SECONDS: Final = 0.25
"""This time if the catalog seems expensive."""
EXPENSIVE: Final = 1.3
"""The catalog seems expensive if it costs this many times what would be too much after a try."""
DECISIVE: Final = 2.0
"""A way that costs this many times the other is tried again after a longer pause."""
NATIVE_GAIN: Final = 1.15
"""Native inserts must be faster by this factor, because the buckets of the catalog are better for later reads."""
GAIN_IF_LATE: Final = 3.0
"""This factor if measurements are late or alternate, which leaves a native collection with many small buckets."""
LATE_BYTES: Final = 20_000
"""``GAIN_IF_LATE`` applies if there is a late measurement in this many bytes, or more often."""

WEIGHT_WHILE_JOINING: Final = 0.1
"""Of a native period in its average cost, if it costs more because parts of the catalog are joined meanwhile."""

CHOICES_BYTES: Final = 2 * 1024 * 1024
CHOICE_BYTES: Final = 600

Mode = Literal["auto", "native", "catalog"]
FEWEST_NATIVE_BYTES: Final[Mapping[Mode, int]] = {"auto": FEWEST_BYTES, "native": 1, "catalog": sys.maxsize}


class InsertPath(Enum):
    """How an insert is carried out."""

    CATALOG = auto()
    NATIVE = auto()

    @property
    def other(self) -> InsertPath:
        """The other way."""
        return InsertPath.NATIVE if self is InsertPath.CATALOG else InsertPath.CATALOG


class CatalogCosts(Protocol):
    """What inserts through the catalog cost beside their time."""

    def late_measurements(self, namespace: Namespace) -> int:
        """How often a series of this collection has gone back in time so far, or returned to a bucket."""
        ...

    def join_seconds(self, namespace: Namespace) -> float:
        """What the joins of all parts made so far in this collection cost the server, whether due or done."""
        ...

    @property
    def has_unjoined(self) -> bool:
        """Whether parts wait to be joined."""
        ...


class _NoCosts:
    """A catalog whose inserts cost nothing else."""

    has_unjoined = False

    def late_measurements(self, namespace: Namespace) -> int:
        return 0

    def join_seconds(self, namespace: Namespace) -> float:
        return 0.0


class Period:
    """Measures the inserts of one way: the time with inserts in progress, and what happened meanwhile.

    Inserts of the period before may still be in progress when it begins; until they have ended, nothing is measured.
    """

    __slots__ = (
        "_catalog",
        "_in_progress",
        "_joins_before",
        "_late_before",
        "_left_over",
        "_namespace",
        "busy_seconds",
        "busy_since_seconds",
        "inserts",
        "number",
        "size_bytes",
    )

    def __init__(self, catalog: CatalogCosts, namespace: Namespace) -> None:
        self._catalog = catalog
        self._namespace = namespace
        self.number = 0
        self.busy_since_seconds = 0.0
        self._in_progress = 0
        self._left_over = 0
        self.measure_anew()

    @property
    def put_off_seconds(self) -> float:
        """What the joins of the parts that were made take."""
        return self._catalog.join_seconds(self._namespace) - self._joins_before

    @property
    def late(self) -> int:
        """The number of late measurements."""
        return self._catalog.late_measurements(self._namespace) - self._late_before

    def begin(self, now_seconds: float) -> int:
        """An insert begins; returns the number of its period."""
        if not self._in_progress:
            self.busy_since_seconds = now_seconds
        self._in_progress += 1
        return self.number

    def end(self, number: int, size_bytes: int, now_seconds: float, *, failed: bool) -> bool:
        """An insert has ended; one that failed says nothing. Returns whether there are enough inserts now."""
        self.busy_seconds += now_seconds - self.busy_since_seconds
        self.busy_since_seconds = now_seconds
        self._in_progress -= 1
        if number != self.number:
            self._left_over -= 1
            if not self._left_over:
                self.measure_anew()
            return False
        if self._left_over or failed:
            return False
        self.size_bytes += size_bytes
        self.inserts += 1
        return self.inserts >= PERIOD_INSERTS

    def measure_anew(self) -> None:
        """Forget what was measured."""
        self.busy_seconds = 0.0
        self.size_bytes = 0
        self.inserts = 0
        self._joins_before = self._catalog.join_seconds(self._namespace)
        self._late_before = self._catalog.late_measurements(self._namespace)

    def next(self) -> None:
        """The way changes."""
        self.measure_anew()
        self.number += 1
        self._left_over = self._in_progress


class Choice:
    """The way that inserts of one kind take, and what both ways have cost."""

    __slots__ = (
        "_catalog",
        "_clock",
        "_costs",
        "_is_late",
        "_next_try_seconds",
        "_pause_seconds",
        "_period",
        "_preferred",
        "_tried_at_seconds",
        "way",
    )

    def __init__(self, clock: Callable[[], float], catalog: CatalogCosts, namespace: Namespace) -> None:
        """``clock``: a monotonic time in seconds."""
        self._clock = clock
        self._catalog = catalog
        self.way = InsertPath.CATALOG
        """The way of the next insert."""
        self._preferred = InsertPath.CATALOG
        self._costs: dict[InsertPath, float] = {}
        """Seconds per byte in the latest period of each way."""
        self._next_try_seconds = clock() + FIRST_TRY_SECONDS
        self._tried_at_seconds = -SHORTEST_PAUSE_SECONDS
        """When the latest try ended."""
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._period = Period(catalog, namespace)
        self._is_late = False

    def begin(self) -> int:
        """An insert begins; returns the number of its period."""
        return self._period.begin(self._clock())

    def end(self, number: int, size_bytes: int, *, failed: bool) -> None:
        """An insert of that period has ended."""
        now_seconds, period = self._clock(), self._period
        if not period.end(number, size_bytes, now_seconds, failed=failed):
            return
        # Parts that are made while inserts are native are those of other inserts.
        put_off_seconds = period.put_off_seconds if self.way is InsertPath.CATALOG else 0.0
        if period.busy_seconds >= PERIOD_SECONDS or put_off_seconds >= PUT_OFF_SECONDS:
            self._decide(put_off_seconds, now_seconds)

    def _decide(self, put_off_seconds: float, now_seconds: float) -> None:
        """A period is over."""
        period = self._period
        if self.way is InsertPath.CATALOG:
            self._is_late = period.late * LATE_BYTES > period.size_bytes
            self._costs[self.way] = (period.busy_seconds + put_off_seconds) / period.size_bytes
        else:
            self._costs[self.way] = self._native_cost(period.busy_seconds / period.size_bytes)
        if self.way is not self._preferred:
            self._judge(now_seconds)
        elif now_seconds >= self._next_try_seconds or self._seems_expensive(put_off_seconds, now_seconds):
            self._take(self.way.other)
        period.measure_anew()

    def _native_cost(self, latest: float) -> float:
        """Joins hold native inserts up, but these are not the cause."""
        known = self._costs.get(InsertPath.NATIVE)
        if known is None or latest <= known or not self._catalog.has_unjoined:
            return latest
        return known + WEIGHT_WHILE_JOINING * (latest - known)

    def _seems_expensive(self, put_off_seconds: float, now_seconds: float) -> bool:
        """Whether to try native inserts now, as the catalog costs much more than they did or are likely to."""
        if self.way is InsertPath.NATIVE or now_seconds < self._tried_at_seconds + SHORTEST_PAUSE_SECONDS:
            return False
        native = self._costs.get(InsertPath.NATIVE)
        if native is None:
            return put_off_seconds > self._period.busy_seconds
        return self._costs[InsertPath.CATALOG] > EXPENSIVE * self._gain * native

    @property
    def _gain(self) -> float:
        """By which factor native inserts must be cheaper."""
        if self._is_late:
            return GAIN_IF_LATE
        # What was good enough to begin stays until the catalog is as good.
        return 1.0 if self._preferred is InsertPath.NATIVE else NATIVE_GAIN

    def _judge(self, now_seconds: float) -> None:
        """The other way was tried."""
        native, catalog = self._costs[InsertPath.NATIVE], self._costs[InsertPath.CATALOG]
        best = InsertPath.NATIVE if native * self._gain < catalog else InsertPath.CATALOG
        if best is self._preferred:
            is_decisive = self._costs[best.other] > DECISIVE * self._costs[best]
            longer = self._pause_seconds * (4 if is_decisive else 2)
            self._pause_seconds = min(longer, LONGEST_PAUSE_SECONDS)
            self._take(best)
        else:
            self._preferred = best
            self._pause_seconds = FIRST_PAUSE_SECONDS
        self._tried_at_seconds = now_seconds
        self._next_try_seconds = now_seconds + self._pause_seconds

    def _take(self, way: InsertPath) -> None:
        self.way = way
        self._period.next()


class _Measured:
    """The meter of an insert that also tells its choice, once, that it has ended."""

    __slots__ = ("_choice", "_meter", "_period", "_size_bytes")

    def __init__(self, choice: Choice, size_bytes: int, meter: Meter | None) -> None:
        self._choice: Choice | None = choice
        self._size_bytes = size_bytes
        self._meter = meter
        self._period = choice.begin()

    @property
    def way(self) -> str:
        return "" if self._meter is None else self._meter.way

    def done(self, seconds: float, code: int = 0) -> None:
        self._end(failed=code != 0)
        if self._meter is not None:
            self._meter.done(seconds, code)

    def abandon(self) -> None:
        """The client has disconnected, so nothing more may be heard of the insert."""
        self._end(failed=True)

    def _end(self, *, failed: bool) -> None:
        choice, self._choice = self._choice, None
        if choice is not None:
            choice.end(self._period, self._size_bytes, failed=failed)


class WriteStrategy:
    """The choices of all collections, bounded in bytes; the least recently used are removed first."""

    def __init__(
        self,
        mode: Mode,
        clock: Callable[[], float],
        catalog: CatalogCosts | None = None,
    ) -> None:
        """``mode``: ``auto``, or the way of all inserts; ``clock``: a monotonic time in seconds."""
        self._mode = mode
        self.fewest_bytes = FEWEST_NATIVE_BYTES[mode]
        """Smaller inserts never go natively."""
        self._clock = clock
        self._catalog = catalog or _NoCosts()
        self._choices: BoundedCache[tuple[object, int], Choice] = BoundedCache(CHOICES_BYTES, _choice_bytes)

    @property
    def is_native(self) -> bool:
        """Whether the setting wants all inserts to be native."""
        return self._mode == "native"

    def way(self, collection: VirtualCollection, size_bytes: int) -> InsertPath:
        """The way of an insert whose documents have ``size_bytes``."""
        if size_bytes < self.fewest_bytes:
            return InsertPath.CATALOG
        return InsertPath.NATIVE if self._mode == "native" else self._choice(collection, size_bytes).way

    def measure(self, exchange: Exchange, collection: VirtualCollection, size_bytes: int) -> None:
        """Measure an insert that has just begun, and whose meter is known; its client waits for a reply."""
        if self._mode == "auto" and size_bytes >= self.fewest_bytes:
            measured = _Measured(self._choice(collection, size_bytes), size_bytes, exchange.meter)
            exchange.meter = measured
            exchange.on_abandon = measured.abandon

    @property
    def memory_bytes(self) -> int:
        """The approximate size of all choices."""
        return self._choices.size_bytes

    def _choice(self, collection: VirtualCollection, size_bytes: int) -> Choice:
        key = (collection.uuid or collection.namespace, size_bytes.bit_length() // 2)
        choice = self._choices.get(key)
        if choice is None:
            choice = Choice(self._clock, self._catalog, collection.namespace)
            self._choices.put(key, choice)
        return choice


def _choice_bytes(key: tuple[object, int], choice: Choice) -> int:
    return CHOICE_BYTES
