"""Growth in parts under simulation: the backend's atomic step, and readers that count every row."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bson import ObjectId

from catalog.bson.codec import decode, encode
from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import Namespace, VirtualCollection
from catalog.parts import PREFIX_BYTES
from proxy.readers import ReaderRegister
from tests.simulation.auditor import Auditor, Verdict, rows_of
from tests.simulation.server import Port, Server, Stored

NAMESPACE = Namespace("db", "c")


class JoinPort(Port):
    """``join`` as a transaction, which notices everything, or as one operation with preconditions."""

    def __init__(self, server: Server, *, sealed: bool, allowed: bool, may_be_late: bool) -> None:
        super().__init__(server)
        self._sealed = sealed
        self._allowed = allowed
        self._may_be_late = may_be_late

    async def join(
        self,
        collection: VirtualCollection,
        first_id: bytes,
        last_id: bytes,
        merge: Callable[[Sequence[bytes]], bytes],
        deadline_seconds: float,
    ) -> int | None:
        server, chance, faults = self._server, self._server.chance, self._server.faults
        await asyncio.sleep(chance.random() * 0.01)
        if not self._allowed:
            raise CommandError(13, "not authorized")
        if chance.random() < faults.refused:
            raise BackendUnavailable("connection refused")
        stored = server.current
        if stored is None:
            return None
        if self._sealed and first_id in stored.documents:
            stored.documents[first_id]["control"]["closed"] = True
        before = {each: stored.documents[each] for each in sorted(stored.documents) if first_id <= each <= last_id}
        if last_id not in before:
            return None
        if len(before) < 2:
            return 1
        encoded = [encode(each) for each in before.values()]
        joined = decode(merge(encoded))
        await asyncio.sleep(chance.random() * 0.01)
        if chance.random() < faults.lost_before:
            raise BackendUnavailable("connection reset")

        def apply() -> bool:
            return self._apply(stored, before, encoded, joined)

        if self._may_be_late and chance.random() < faults.late:
            server.hand_over(lambda: (apply(), None)[1], chance.choice((0.05, 1, 10, 50)))
            raise BackendUnavailable("no answer in time")
        if not apply():
            raise CommandError(112, "write conflict")
        await asyncio.sleep(chance.random() * 0.01)
        if chance.random() < faults.lost_after:
            raise BackendUnavailable("connection reset")
        return len(before)

    def _apply(
        self, stored: Stored, before: Mapping[bytes, Any], encoded: Sequence[bytes], joined: dict[str, Any]
    ) -> bool:
        documents, ids = stored.documents, list(before)
        if self._sealed:
            unchanged = ids[0] in documents and ids[-1] in documents
        else:
            unchanged = all(
                each in documents and encode(documents[each]) == was for each, was in zip(ids, encoded, strict=True)
            )
        if not unchanged or self._server.current is not stored:
            return False
        self._server.auditor.joined([documents[each] for each in ids], joined)
        for each in ids:
            del documents[each]
        documents[joined["_id"].binary] = joined
        self._server.joins += 1
        return True

    async def find_parts(
        self, collection: VirtualCollection, since_ms: int, deadline_seconds: float
    ) -> Sequence[tuple[bytes, bytes]]:
        documents = await self._read(collection, deadline_seconds)
        groups: dict[Any, list[bytes]] = {}
        for each in documents:
            identity = each["_id"].binary
            groups.setdefault((identity[:PREFIX_BYTES], each.get("meta")), []).append(identity)
        return [(min(ids), max(ids)) for ids in groups.values() if len(ids) > 1]


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
        self._register.leave("db")

    async def _enter(self) -> None:
        while (barrier := self._register.barrier("db")) is not None:
            await barrier
        self._register.enter("db")
        self._is_in = True
