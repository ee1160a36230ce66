"""A store for coalesced inserts with scripted answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from catalog.errors import Withheld
from catalog.namespaces import VirtualCollection
from catalog.ports import Acknowledgement, Applied, BulkOutcome, MaySend, Rejected, WriteConcern


class NativeStoreDouble:
    """Gives the scripted answers, and then success; with a gate, each waits for it."""

    def __init__(self, *answers: Any, repeatable: bool = True) -> None:
        self.answers = list(answers)
        self.sent: list[list[bytes]] = []
        self.numbers: list[int | None] = []
        self.ordered: list[bool] = []
        self.deadlines_seconds: list[float] = []
        self.free: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._repeatable = repeatable
        self._count = 0

    def next_number(self) -> int | None:
        self._count += 1
        return self._count if self._repeatable else None

    def settled(self, number: int | None, *, is_known: bool = True) -> None:
        if is_known and number is not None:
            self.free.append(number)

    async def insert(
        self,
        collection: VirtualCollection,
        documents: Sequence[bytes],
        write_concern: WriteConcern,
        number: int | None,
        deadline_seconds: float,
        may_send: MaySend | None = None,
        *,
        ordered: bool,
    ) -> BulkOutcome:
        if may_send is not None and not may_send():
            return Rejected(Withheld())
        self.sent.append(list(documents))
        self.ordered.append(ordered)
        self.numbers.append(number)
        self.deadlines_seconds.append(deadline_seconds)
        await self.gate.wait()
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer or Applied(len(documents), {}, Acknowledgement())
