"""Growth in parts under simulation: the backend's atomic step, and readers that count every row."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from bson import ObjectId

from catalog.namespaces import Namespace, VirtualCollection
from catalog.parts import bucket_key
from proxy.backend.parts.direct_writes import DirectWrites
from proxy.backend.parts.part_store import PartStore
from proxy.backend.write_numbers import WriteNumbers
from proxy.readers.register import ReaderRegister
from tests.simulation.auditor import Auditor, Verdict, rows_of
from tests.simulation.commands import CommandLine
from tests.simulation.server import Port, Server, Stored

NAMESPACE = Namespace("db", "c")


class JoinPort(Port):
    """A port with ``prepare_join``, by the code that does it on real servers."""

    def __init__(
        self,
        server: Server,
        line: CommandLine,
        readers: ReaderRegister,
        numbers: WriteNumbers | None,
        *,
        sealed: bool,
        alone: bool,
    ) -> None:
        super().__init__(server, numbers)
        self._readers = readers
        self.direct_writes = DirectWrites(lambda: asyncio.get_running_loop().time())
        store = PartStore(line, transactions=not sealed, alone=lambda: alone, direct_writes=self.direct_writes)  # type: ignore[arg-type]
        self.prepare_join = store.prepare_join  # type: ignore[method-assign]

    async def _read(self, collection: VirtualCollection, deadline_seconds: float) -> list[dict[str, Any]]:
        await self._readers.active.admitted("db")
        self._readers.active.enter("db")
        try:
            return await super()._read(collection, deadline_seconds)
        finally:
            self._readers.active.leave("db")

    async def find_parts(
        self, collection: VirtualCollection, since_ms: int, deadline_seconds: float
    ) -> Sequence[Sequence[bytes]]:
        documents = await self._read(collection, deadline_seconds)
        groups: dict[Any, list[bytes]] = {}
        for each in documents:
            identity = each["_id"].binary
            groups.setdefault((bucket_key(identity), each.get("meta")), []).append(identity)
        return [sorted(ids) for ids in groups.values() if len(ids) > 1]


class Reader:
    """Scans all buckets in a few steps, as a client through one process, and counts."""

    def __init__(self, server: Server, auditor: Auditor, register: ReaderRegister, number: int) -> None:
        self._server = server
        self._auditor = auditor
        self._register = register
        self._cursor_id = number
        self._is_in = False

    async def scan(self, is_alive: Callable[[], bool]) -> None:
        await self._enter()
        owed = {each for each, verdict in self._auditor.verdicts.items() if verdict is Verdict.STORED}
        owed = {each for each in owed if self._auditor.present.get(each)}
        stored = self._server.current
        try:
            seen = await self._seen(stored)
        finally:
            self._register.relayed.ended(self._cursor_id)
            if self._is_in:
                self._leave()
        if stored is None or stored is not self._server.current or not is_alive():
            return
        doubled = [each for each, count in seen.items() if count > 1]
        missing = [each for each in owed if self._auditor.present.get(each) and each not in seen]
        assert not doubled, f"{len(doubled)} rows are seen twice"
        assert not missing, f"{len(missing)} of {len(owed)} rows are not seen"
        self._server.scans += 1

    async def _seen(self, stored: Stored | None) -> Counter[ObjectId]:
        chance = self._server.chance
        backwards = chance.random() < 0.5
        with_cursor = chance.random() < 0.5
        position: bytes | None = None
        seen: Counter[ObjectId] = Counter()
        while stored is not None and stored is self._server.current:
            await asyncio.sleep(chance.random() * 0.01)
            ids = sorted(stored.documents, reverse=backwards)
            left = [each for each in ids if position is None or (each < position if backwards else each > position)]
            for each in left[:3]:
                seen.update(row["_id"] for row in rows_of(stored.documents[each]))
                position = each
            if len(left) <= 3:
                break
            if with_cursor and chance.random() < 0.3:
                self._register.relayed.opened(self._cursor_id, NAMESPACE)
                self._leave()
                await asyncio.sleep(chance.choice((0.01, 0.2)))
                await self._enter()
        return seen

    def _leave(self) -> None:
        self._is_in = False
        self._register.active.leave("db")

    async def _enter(self) -> None:
        await self._register.active.admitted("db")
        self._register.active.enter("db")
        self._is_in = True
