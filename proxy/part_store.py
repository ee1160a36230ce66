"""How the backend joins the parts of a bucket in one atomic step (``catalog.ports.BucketStore.join``).

A replica set does it in a transaction. A standalone has none, but applies an ``applyOps`` of inserts and deletes
as a whole; it does not notice other writers, so parts are closed for them (``control.closed``) before they are
read, and the first and the last must still be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import bson
from bson.binary import Binary
from bson.codec_options import CodecOptions
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument

from catalog.bson.codec import decode, encode
from catalog.errors import CommandError
from catalog.namespaces import VirtualCollection
from proxy.service import ServicePool
from rewrite.profile import Profile

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
NO_PRIMARY = frozenset({91, 189, 10107, 11600, 11602, 13435, 13436})
"""A member answers so that is no primary any more."""

WRITE_CONFLICT = 112

Merge = Callable[[Sequence[bytes]], bytes]


def joins_atomically(profile: Profile) -> tuple[bool, bool]:
    """Whether this backend can join parts at all, and whether they have to be closed for that.

    Servers from 7.0 on leave closed buckets out of deletes, so their standalones cannot.
    """
    if profile.is_mongos or not profile.has_native_timeseries:
        return False, False
    if profile.is_replica_set:
        return True, False
    return profile.version < (7, 0, 0), True


def may_apply_operations(privileges: Iterable[Mapping[str, Any]]) -> bool:
    """Whether privileges as ``connectionStatus`` lists them let an account join parts on a standalone.

    What each operation inside needs besides is in the least role, and is asked for by every commit anyway.
    """
    return any(
        not {"applyOps", "anyAction"}.isdisjoint(privilege.get("actions", ()))
        for privilege in privileges
        if privilege["resource"].get("cluster") or privilege["resource"].get("anyResource")
    )


class PartStore:
    """Joins, over service connections."""

    def __init__(self, pool: ServicePool, *, transactions: bool) -> None:
        self._pool = pool
        self._transactions = transactions
        self._sessions: list[tuple[Binary, int]] = []
        """Sessions that are free, each with its latest transaction number; servers bound how many there are."""

    async def join(
        self, collection: VirtualCollection, first_id: bytes, last_id: bytes, merge: Merge, deadline_seconds: float
    ) -> int | None:
        """See the port."""
        step = _Join(self._pool, collection, first_id, last_id, merge, deadline_seconds)
        if not self._transactions:
            return await step.in_one_operation()
        session, number = self._sessions.pop() if self._sessions else (Binary(uuid4().bytes, 4), 0)
        try:
            return await step.in_transaction({"lsid": {"id": session}, "txnNumber": Int64(number + 1)})
        finally:
            self._sessions.append((session, number + 1))


class _Join:
    def __init__(
        self,
        pool: ServicePool,
        collection: VirtualCollection,
        first_id: bytes,
        last_id: bytes,
        merge: Merge,
        deadline_seconds: float,
    ) -> None:
        self._pool = pool
        self._buckets = collection.buckets
        self._uuid = Binary(collection.uuid, 4) if collection.uuid else None
        self._first_id, self._last_id = ObjectId(first_id), ObjectId(last_id)
        self._range = {"_id": {"$gte": self._first_id, "$lte": self._last_id}}
        self._merge = merge
        self._deadline_seconds = deadline_seconds

    async def in_one_operation(self) -> int | None:
        """For a standalone."""
        not_closed = {**self._range, "control.closed": {"$ne": True}}
        seal = {"q": not_closed, "u": {"$set": {"control.closed": True}}, "multi": True}
        await self._run({"update": self._buckets.collection, "updates": [seal]})
        stored = await self._stored({})
        if len(stored) < 2:
            return len(stored) or None
        if not all(document["control"].get("closed") for document in stored):
            # Another process joined some of them just now, and its result is open for appends.
            raise CommandError(WRITE_CONFLICT, "parts were joined meanwhile")
        operations: list[dict[str, Any]] = [
            {"op": "d", "ns": str(self._buckets), "ui": self._uuid, "o": {"_id": document["_id"]}}
            for document in stored
        ]
        joined = RawBSONDocument(self._merge([bytes(document.raw) for document in stored]))
        operations.append({"op": "i", "ns": str(self._buckets), "ui": self._uuid, "o": joined})
        present = [
            {"ns": str(self._buckets), "q": {"_id": each}, "res": {"_id": each}}
            for each in (stored[0]["_id"], self._last_id)
        ]
        await self._run({"applyOps": operations, "preCondition": present}, database="admin")
        return len(stored)

    async def in_transaction(self, session: Mapping[str, Any]) -> int | None:
        """For a replica set; ``session`` has ``lsid`` and ``txnNumber``."""
        fields = {**session, "autocommit": False}
        try:
            stored = await self._stored({**fields, "startTransaction": True, "readConcern": {"level": "snapshot"}})
            if len(stored) < 2:
                await self._abort(fields)
                return len(stored) or None
            joined = RawBSONDocument(self._merge([bytes(document.raw) for document in stored]))
            statement = {"q": self._range, "limit": 0}
            deleted = await self._run({"delete": self._buckets.collection, "deletes": [statement], **fields})
            if deleted["n"] != len(stored):
                await self._abort(fields)
                return None
            await self._run({"insert": self._buckets.collection, "documents": [joined], **fields})
            await self._run({"commitTransaction": 1, **fields}, database="admin")
        except (CommandError, ValueError):
            await self._abort(fields)
            raise
        return len(stored)

    async def _stored(self, fields: Mapping[str, Any]) -> list[RawBSONDocument]:
        body = {
            "find": self._buckets.collection,
            "filter": self._range,
            "batchSize": 100_000,
            "singleBatch": True,
            **fields,
            "$db": self._buckets.database,
        }
        reply = bson.decode(await self._pool.request(encode(body), self._deadline_seconds), RAW)
        if not reply.get("ok"):
            raise self._error(decode(bytes(reply.raw)))
        found: list[RawBSONDocument] = list(reply["cursor"]["firstBatch"])
        if found and found[-1]["_id"] != self._last_id:
            return []
        return found

    async def _run(self, body: Mapping[str, Any], database: str = "") -> dict[str, Any]:
        document = {**body, "$db": database or self._buckets.database}
        reply = decode(await self._pool.request(encode(document), self._deadline_seconds))
        if not reply.get("ok"):
            raise self._error(reply)
        if errors := reply.get("writeErrors"):
            raise CommandError(int(errors[0]["code"]), str(errors[0].get("errmsg", "")))
        return reply

    async def _abort(self, fields: Mapping[str, Any]) -> None:
        try:
            await self._run({"abortTransaction": 1, **fields}, database="admin")
        except CommandError:
            # It was ended already, or ends by itself when the server's time limit for transactions is over.
            return

    def _error(self, reply: Mapping[str, Any]) -> CommandError:
        error = CommandError(int(reply.get("code", 1)), str(reply.get("errmsg", "")))
        if error.code in NO_PRIMARY:
            self._pool.forget_primary()
        return error
