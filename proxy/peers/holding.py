"""Keeps the readers of all proxies waiting while one of them joins parts (``catalog.background.joining``).

A cursor that is between two parts when they are joined would miss rows or return them twice. So the proxy that joins
asks the others to keep their readers of the database waiting, for a *hold*: no more than a few hundredths of a second,
as a rule. A hold is a lease. The holder renews it, and must not begin another step once a lease may have expired. A
process whose lease was not renewed for ``HOLD_LEASE_SECONDS`` waits until everything that the holder has sent to the
backend has ended, and then lets its readers continue.

If two processes ask one another at the same time, the one with the smaller name goes first: the other one gives up and
tries again later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final, Protocol

from proxy.observe.peer_numbers import PeerNumbers
from proxy.peers.link import Inbound, LinkLost

HOLD_LEASE_SECONDS: Final = 1.0
"""Time for which a process keeps its readers waiting unless the hold is renewed."""
VALID_SECONDS: Final = 0.7
"""Time for which the holder relies on a hold, from before it asks for it or renews it."""
RENEW_SECONDS: Final = 0.3
"""Interval at which the holder renews a hold."""
LONGEST_SECONDS: Final = 15.0
"""Time for which a hold can be renewed; joins are given up before."""
PATIENCE_SECONDS: Final = 0.75
"""How long the others may take to answer: each waits for its own joins and readers, for a quarter of a second each."""
PAUSES_SECONDS: Final = (0.25, 8.0)
"""The first and the longest pause after another process has not answered in time."""
MOST_SILENCES: Final = 3
"""Number of consecutive requests without an answer after which a process is given up."""


class Holder(Protocol):
    """Another process that can keep its readers waiting."""

    @property
    def name(self) -> str:
        """Its name at the backend."""
        ...

    def hold(self, number: int, database: str) -> Awaitable[bool]:
        """Whether its readers wait; raises ``LinkLost``."""
        ...

    def release(self, number: int) -> None:
        """End the hold."""
        ...

    def give_up(self) -> None:
        """It does not answer: close the link, so that both sides reconnect."""
        ...


class Barrier(Protocol):
    """The readers of this process (``proxy.readers.register``)."""

    def kept_out_here(self, database: str) -> AbstractAsyncContextManager[bool]:
        """Keep new readers of the database waiting; true if none is active."""
        ...


class _Hold:
    """One that this process has, or asks for."""

    __slots__ = ("database", "number", "patience", "until_seconds")

    def __init__(self, number: int, database: str) -> None:
        self.number = number
        self.database = database
        self.until_seconds = 0.0
        self.patience: asyncio.Timeout | None = None
        """While the others are being asked."""


class Holding:
    """The side that asks. It has one hold at a time."""

    def __init__(
        self,
        own_name: str,
        holders: Callable[[], Sequence[Holder]],
        numbers: PeerNumbers,
        now_seconds: Callable[[], float],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """``now_seconds`` must go on while the process is stopped. ``spawn`` owns what runs in the background."""
        self._own_name = own_name
        self._holders = holders
        self._numbers = numbers
        self._now_seconds = now_seconds
        self._spawn = spawn
        self._hold: _Hold | None = None
        self._next = 0
        self._turn = asyncio.Lock()
        self._pause_seconds = PAUSES_SECONDS[0]
        self._not_before_seconds = 0.0
        self._silences: dict[str, int] = {}

    def names(self) -> AbstractSet[str]:
        """The processes that can be asked."""
        return {each.name for each in self._holders()}

    @property
    def lasts(self) -> bool:
        """Whether the others still keep their readers waiting, if they were asked to. Also called from threads."""
        hold = self._hold
        return hold is None or self._now_seconds() < hold.until_seconds

    @asynccontextmanager
    async def held(self, database: str) -> AsyncIterator[AbstractSet[str] | None]:
        """The names of processes that keep their readers of the database waiting; ``None`` if one of them does not."""
        holders = self._holders()
        if not holders:
            yield frozenset()
            return
        if self._now_seconds() < self._not_before_seconds:
            yield None
            return
        async with self._turn:
            self._next = (self._next + 1) % (1 << 32)
            hold = self._hold = _Hold(self._next, database)
            renewing = None
            try:
                self._numbers.holds += 1
                if not await self._ask(hold, holders):
                    self._numbers.holds_refused += 1
                    yield None
                    return
                renewing = asyncio.get_running_loop().call_later(RENEW_SECONDS, self._renew, hold, holders)
                yield frozenset(each.name for each in holders)
            finally:
                self._hold = None
                if renewing is not None:
                    renewing.cancel()
                for each in holders:
                    each.release(hold.number)

    def gives_way(self, name: str, database: str) -> None:
        """The process with this name asks for a hold: let it, if it goes first."""
        hold = self._hold
        if hold is None or hold.database != database or hold.patience is None or name > self._own_name:
            return
        with suppress(RuntimeError):  # the time is up anyway
            hold.patience.reschedule(asyncio.get_running_loop().time())
            hold.patience = None

    async def _ask(self, hold: _Hold, holders: Sequence[Holder]) -> bool:
        """Ask all of them; whether all agree."""
        asked_seconds = self._now_seconds()
        answered: dict[str, bool] = {}

        async def ask(holder: Holder) -> None:
            answered[holder.name] = await holder.hold(hold.number, hold.database)

        try:
            async with asyncio.timeout(PATIENCE_SECONDS) as hold.patience:
                await asyncio.gather(*(ask(each) for each in holders))
        except LinkLost:
            return False
        except TimeoutError:
            if hold.patience is not None:
                self._silent([each for each in holders if each.name not in answered])
            return False
        finally:
            hold.patience = None
        self._silences.clear()
        self._pause_seconds = PAUSES_SECONDS[0]
        hold.until_seconds = asked_seconds + VALID_SECONDS
        return all(answered.values())

    def _silent(self, holders: Sequence[Holder]) -> None:
        """Do not ask for a while, because readers of all processes wait meanwhile."""
        self._not_before_seconds = self._now_seconds() + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, PAUSES_SECONDS[1])
        silences, self._silences = self._silences, {}
        for each in holders:
            count = self._silences[each.name] = silences.get(each.name, 0) + 1
            if count >= MOST_SILENCES:
                each.give_up()

    def _renew(self, hold: _Hold, holders: Sequence[Holder]) -> None:
        if self._hold is hold:
            self._spawn(self._renewed(hold, holders))

    async def _renewed(self, hold: _Hold, holders: Sequence[Holder]) -> None:
        asked_seconds = self._now_seconds()

        async def ask(holder: Holder) -> bool:
            # After its end, this would be another hold, without an end.
            return self._hold is hold and await holder.hold(hold.number, hold.database)

        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                answers = await asyncio.gather(*(ask(each) for each in holders))
        except (LinkLost, TimeoutError):
            return
        if self._hold is hold and all(answers):
            hold.until_seconds = asked_seconds + VALID_SECONDS
            asyncio.get_running_loop().call_later(RENEW_SECONDS, self._renew, hold, holders)


class _Given:
    """A hold of another process."""

    __slots__ = ("_since_seconds", "database", "is_granted", "is_lost", "number", "over", "until_seconds")

    def __init__(self, number: int, database: str, now_seconds: float) -> None:
        self.number = number
        self.database = database
        self._since_seconds = now_seconds
        self.until_seconds = now_seconds + HOLD_LEASE_SECONDS
        self.is_granted = False
        self.is_lost = False
        """Whether the link has ended before the hold was."""
        self.over = asyncio.Event()

    def renew(self, now_seconds: float) -> bool:
        """Whether it goes on."""
        if not self.is_granted or now_seconds - self._since_seconds > LONGEST_SECONDS:
            return False
        self.until_seconds = now_seconds + HOLD_LEASE_SECONDS
        return True


class HeldHere:
    """The side that is asked: one hold for each other process."""

    def __init__(
        self,
        readers: Barrier | None,
        holding: Holding,
        numbers: PeerNumbers,
        ended: Callable[[str], Awaitable[object]],
        now_seconds: Callable[[], float],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """Without ``readers`` nothing is granted.

        ``ended`` waits, within a bound, until what a process has sent to the backend is over.
        """
        self._readers = readers
        self._holding = holding
        self._numbers = numbers
        self._ended = ended
        self._now_seconds = now_seconds
        self._spawn = spawn
        self._given: dict[Inbound, _Given] = {}

    def ask(self, inbound: Inbound, number: int, database: str) -> None:
        """Another process asks for a hold, or to go on with it; ``Inbound.held`` answers."""
        given = self._given.get(inbound)
        if given is not None and given.number == number:
            inbound.held(number, is_granted=given.renew(self._now_seconds()))
        elif given is not None or self._readers is None or inbound.peer is None:
            inbound.held(number, is_granted=False)
        else:
            self._holding.gives_way(inbound.peer.name, database)
            given = self._given[inbound] = _Given(number, database, self._now_seconds())
            self._spawn(self._hold(inbound, inbound.peer.name, given, self._readers))

    def release(self, inbound: Inbound, number: int) -> None:
        """The other process has done what it wanted, or gave it up."""
        given = self._given.get(inbound)
        if given is not None and given.number == number:
            del self._given[inbound]
            given.over.set()

    def unlinked(self, inbound: Inbound) -> None:
        """Its link has ended."""
        given = self._given.pop(inbound, None)
        if given is not None:
            given.is_lost = True
            given.over.set()

    async def _hold(self, inbound: Inbound, name: str, given: _Given, readers: Barrier) -> None:
        try:
            async with readers.kept_out_here(given.database) as alone:
                if given.over.is_set():
                    return
                given.is_granted = alone
                inbound.held(given.number, is_granted=alone)
                if alone:
                    self._numbers.held_for_others += 1
                    await self._over(name, given)
        finally:
            if self._given.get(inbound) is given:
                del self._given[inbound]

    async def _over(self, name: str, given: _Given) -> None:
        while not given.over.is_set() and (left_seconds := given.until_seconds - self._now_seconds()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_seconds):
                    await given.over.wait()
        if given.is_lost or not given.over.is_set():
            # It may have been killed or stopped in the middle of a join.
            given.is_granted = False
            await self._ended(name)
