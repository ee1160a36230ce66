"""Has the backend refuse what another process has sent before (``proxy.backend.write_numbers``).

A write that changes nothing, with a higher number, is a fence: the server remembers the number until it is restarted,
which also ends every connection that could bring an older one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from bson.int64 import Int64

from catalog.bounded import remember
from catalog.bson.codec import decode, encode
from catalog.commit.statements import TRANSACTION_TOO_OLD
from catalog.errors import UNAUTHORIZED, CommandError
from catalog.namespaces import Namespace
from catalog.queries import NO_DOCUMENT
from proxy.backend.service import ServicePool
from proxy.backend.write_numbers import LOWEST, SESSIONS, known_number, next_term, session_of

PATIENCE_SECONDS: Final = 5.0
FENCES_AT_ONCE: Final = 4
MOST_PROCESSES: Final = 100
"""How many processes are remembered; of others, only terms are learned anew."""
MOST_PLACES: Final = 5
"""In how many collections the account's right to delete is tried."""


class _Process:
    """The fences of another process."""

    def __init__(self, sessions: Sequence[Mapping[str, Any]]) -> None:
        """``sessions``: those of its writes."""
        self.sessions = sessions
        self.turn = asyncio.Lock()
        self.wanted = 0
        """How often fences were asked for."""
        self.done = 0
        """How many of these requests are met."""
        self.number = LOWEST
        """The highest number that was used for fences."""


class Fences:
    """The fences that this process sets up."""

    def __init__(self, pool: ServicePool, secret: bytes, places: Callable[[], Iterable[Namespace]]) -> None:
        """``secret``: as that of ``WriteNumbers``. ``places``: collections from which the account may delete."""
        self._pool = pool
        self._secret = secret
        self._places = places
        self._processes: OrderedDict[str, _Process] = OrderedDict()

    async def set_up(self, name: str) -> None:
        """What the process with this name has sent until now is refused from now on; raises ``CommandError``.

        Requests that arrive while fences are set up share the next ones.
        """
        process = self._processes.get(name)
        if process is None:
            process = _Process([session_of(self._secret, name, place) for place in range(SESSIONS)])
            remember(self._processes, name, process, MOST_PROCESSES)
        process.wanted += 1
        request = process.wanted
        async with process.turn:
            if process.done >= request:
                return
            met = process.wanted
            await self._set_up(process)
            process.done = met

    async def meets_others(self) -> bool:
        """Whether a write of this process would meet fences of which it has not known; raises ``CommandError``."""
        numbers = self._pool.family.numbers
        if numbers is None:
            return False
        number, known = numbers.take(), -1

        async def send(place: Namespace) -> None:
            nonlocal known
            known = await self._send(place, number.session, number.number)

        try:
            await self._anywhere(send)
        finally:
            numbers.free(number, is_answered=known >= 0)
        numbers.learn(known)
        return known > 0

    async def _set_up(self, process: _Process) -> None:
        await self._anywhere(lambda place: self._in(place, process))

    async def _anywhere(self, work: Callable[[Namespace], Awaitable[None]]) -> None:
        """In the first place where the account may do this; raises ``CommandError``."""
        refusal: CommandError | None = None
        for place in islice(self._places(), MOST_PLACES):
            try:
                await work(place)
            except CommandError as error:
                if error.code != UNAUTHORIZED:
                    raise
                refusal = error
            else:
                return
        if refusal is not None:
            raise refusal

    async def _in(self, place: Namespace, process: _Process) -> None:
        """A higher number than all others in each session, although others may set up fences at the same time."""
        known = await self._send(place, process.sessions[0], LOWEST)
        process.number = next_term(max(process.number, known))
        todo = deque(process.sessions)

        async def work() -> None:
            while todo:
                higher = await self._send(place, todo.popleft(), process.number)
                if higher >= process.number:
                    process.number = next_term(higher)
                    todo.clear()
                    todo.extend(process.sessions)

        # All have ended before anything else is tried.
        ended = await asyncio.gather(*(work() for _ in range(FENCES_AT_ONCE)), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error

    async def _send(self, place: Namespace, session: Mapping[str, Any], number: int) -> int:
        """A delete of nothing with this number; returns the highest number that the server knew, 0 if it was lower."""
        body = {
            "delete": place.collection,
            "deletes": [{"q": NO_DOCUMENT, "limit": 1}],
            "lsid": session,
            "txnNumber": Int64(number),
            "maxTimeMS": round(PATIENCE_SECONDS * 1000),
            "$db": place.database,
        }
        deadline_seconds = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        reply = decode(await self._pool.request(encode(body), deadline_seconds))
        if reply.get("ok"):
            return 0
        code, message = int(reply.get("code", 1)), str(reply.get("errmsg", ""))
        if code == TRANSACTION_TOO_OLD:
            return known_number(message, number)
        raise CommandError(code, message)
