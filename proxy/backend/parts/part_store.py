"""Joins the parts of buckets in one atomic step of the backend (``catalog.ports.BucketStore.join``).

On a replica set, the step is a transaction. A standalone has none, but executes an ``applyOps`` of inserts and deletes
as a whole (``proxy.backend.parts.join_operations``). This does not detect other writers, so parts are closed for them
(``control.closed``) before they are read, and the command has conditions that they are still what was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

from bson.binary import Binary
from bson.int64 import Int64
from bson.objectid import ObjectId

from catalog.bson.codec import decode, encode
from catalog.bson.raw import documents_of, fields_of
from catalog.errors import WRITE_CONFLICT, CommandError, InvariantViolated
from catalog.merging import is_closed
from catalog.namespaces import VirtualCollection
from catalog.ports import Span
from proxy.backend.parts.join_operations import Replacement, apply_ops, id_of, update_of_the_last
from proxy.backend.service import ServicePool
from proxy.upstream.not_primary import NOT_PRIMARY_CODES
from rewrite.profile import Profile

LARGEST_JOIN_BYTES = 7 * 1024 * 1024
"""A command to a standalone, of at most 16 MB, contains the rows twice: to compare and to store."""

LARGE_BYTES = 32 * 1024
"""From this size on, merging and compressing run in a thread: most of it does not need the interpreter."""
_merging = ThreadPoolExecutor(max_workers=1, thread_name_prefix="merging")

FIRST_IN_TRANSACTION = frozenset({"startTransaction", "readConcern"})
"""Fields that only the first command of a transaction has."""

REPLICATION_MS = 500
"""Maximum time that readers wait for a join to reach the members that they read from."""


def joins_atomically(profile: Profile) -> tuple[bool, bool]:
    """Whether this backend can join parts, and whether they must be closed for that.

    Servers from 7.0 skip closed buckets in deletes, so standalones from 7.0 cannot.
    """
    if profile.is_mongos or not profile.has_native_timeseries:
        return False, False
    if profile.is_replica_set:
        return True, False
    return profile.deletes_from_closed_buckets, True


class PartStore:
    """Executes joins over service connections."""

    def __init__(
        self,
        pool: ServicePool,
        *,
        transactions: bool,
        members_read: Callable[[], int] = lambda: 1,
        alone: Callable[[], bool] = lambda: False,
    ) -> None:
        """``members_read``: number of members that must have a join when it is acknowledged.

        ``alone``: whether no other process of the proxy writes.
        """
        self._members_read = members_read
        self._alone = alone
        self._pool = pool
        self._transactions = transactions
        self._sessions: list[tuple[Binary, int]] = []
        """Free sessions, each with its latest transaction number; servers limit the number of sessions."""

    async def join(
        self, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> Sequence[int | None]:
        step = _Join(self._pool, collection, spans, deadline_seconds)
        if not self._transactions:
            return await step.in_one_operation(alone=self._alone())
        session, number = self._sessions.pop() if self._sessions else (Binary(uuid4().bytes, 4), 0)
        try:
            fields = {"lsid": {"id": session}, "txnNumber": Int64(number + 1)}
            return await step.in_transaction(fields, self._members_read())
        finally:
            self._sessions.append((session, number + 1))


class _Join:
    def __init__(
        self, pool: ServicePool, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> None:
        self._pool = pool
        self._collection = collection
        self._buckets = collection.buckets
        self._spans = spans
        self._deadline_seconds = deadline_seconds

    async def in_one_operation(self, *, alone: bool) -> list[int | None]:
        """For a standalone; ``alone``: see ``PartStore``."""
        # Parts are closed when they are written; the result of a join, and the document before them, are not.
        if unsealed := [{"_id": ObjectId(each)} for span in self._spans for each in span.unsealed]:
            await self._seal(unsealed)
        found = await self._stored({})
        if not all(is_closed(each) for stored in found for each in stored):
            await self._seal([_ids(span.first_id, span.last_id) for span in self._spans])
            found = await self._stored({})
        if not all(is_closed(each) for stored in found if len(stored) > 1 for each in stored):
            # Another process joined some of them just now, and its result is open for appends.
            raise CommandError(WRITE_CONFLICT, "parts were joined meanwhile")
        if sum(len(each) for stored in found for each in stored) > LARGEST_JOIN_BYTES:
            raise ValueError("parts that are too large for one operation")
        if replacements := await self._merged(found):
            body = apply_ops(self._collection, replacements, alone=alone)
            self._checked(await self._pool.request(body, self._deadline_seconds))
        return _counts(found)

    async def _seal(self, which: Sequence[Mapping[str, Any]]) -> None:
        seals = [
            {
                "q": {**each, "control.closed": {"$ne": True}},
                "u": {"$set": {"control.closed": True}},
                "multi": True,
            }
            for each in which
        ]
        await self._run({"update": self._buckets.collection, "updates": seals})

    async def in_transaction(self, session: Mapping[str, Any], members: int) -> list[int | None]:
        """For a replica set; ``session`` has ``lsid`` and ``txnNumber``; ``members`` members acknowledge the join."""
        fields = {**session, "autocommit": False}
        try:
            found = await self._stored({**fields, "startTransaction": True, "readConcern": {"level": "snapshot"}})
            replacements = await self._merged(found)
            if not replacements:
                await self._abort(fields)
                return _counts(found)
            spans = [span for span, stored in zip(self._spans, found, strict=True) if len(stored) > 1]
            statements = [{"q": _ids_before(span.first_id, span.last_id), "limit": 0} for span in spans]
            deleted = await self._run({"delete": self._buckets.collection, "deletes": statements, **fields})
            updates = [update_of_the_last(each) for each in replacements]
            updated = await self._run({"update": self._buckets.collection, **fields}, "", "updates", updates)
            if deleted["n"] + updated["n"] != sum(len(each.stored) for each in replacements):
                raise CommandError(WRITE_CONFLICT, "parts were changed meanwhile")
            # Nobody was promised a join: if it is rolled back, its parts are there again, with the same rows.
            concern = {"w": members, "wtimeout": REPLICATION_MS} if members > 1 else {"w": 1}
            await self._run({"commitTransaction": 1, **fields, "writeConcern": concern}, "admin")
        except (CommandError, ValueError, InvariantViolated):
            await self._abort(fields)
            raise
        return _counts(found)

    async def _merged(self, found: Sequence[Sequence[bytes]]) -> list[Replacement]:
        def merge() -> list[Replacement]:
            pairs = zip(self._spans, found, strict=True)
            return [Replacement(stored, span.merge(stored)) for span, stored in pairs if len(stored) > 1]

        if sum(len(each) for stored in found for each in stored) < LARGE_BYTES:
            return merge()
        return await asyncio.get_running_loop().run_in_executor(_merging, merge)

    async def _stored(self, fields: Mapping[str, Any]) -> list[list[bytes]]:
        """For each span the documents from the first to the last; none if the last does not exist."""
        spans = self._spans
        if len(spans) > 1 and all(span.is_whole for span in spans):
            expected = sum(span.count for span in spans)
            limit = expected + expected // 4 + len(spans)
            documents = await self._between(spans, limit, fields)
            if len(documents) < limit:
                return _by_span(documents, spans)
            # Much of others is between them.
            fields = _further(fields)
        if "autocommit" not in fields:
            between = await asyncio.gather(*(self._between([each], 0, fields) for each in spans))
            return [_by_span(documents, [each])[0] for documents, each in zip(between, spans, strict=True)]
        # The commands of a transaction follow each other.
        found: list[list[bytes]] = []
        for each in spans:
            found += _by_span(await self._between([each], 0, fields), [each])
            fields = _further(fields)
        return found

    async def _between(self, spans: Sequence[Span], limit: int, fields: Mapping[str, Any]) -> list[bytes]:
        """All documents from the first span to the last, at most ``limit`` if it is not 0."""
        body = {
            "find": self._buckets.collection,
            "filter": _ids(spans[0].first_id, spans[-1].last_id),
            "batchSize": 100_000,
            "singleBatch": True,
            **({"limit": limit} if limit else {}),
            **fields,
            "$db": self._buckets.database,
        }
        reply = await self._pool.request(encode(body), self._deadline_seconds)
        cursor = fields_of(reply).get(b"cursor")
        if cursor is None:
            raise self._error(decode(reply))
        return documents_of(fields_of(cursor, 1)[b"firstBatch"], 1)

    async def _run(
        self, body: Mapping[str, Any], database: str = "", identifier: str = "", documents: Sequence[bytes] = ()
    ) -> dict[str, Any]:
        raw = encode({**body, "$db": database or self._buckets.database})
        return self._checked(await self._pool.request(raw, self._deadline_seconds, identifier, documents))

    def _checked(self, raw: bytes) -> dict[str, Any]:
        reply = decode(raw)
        if not reply.get("ok"):
            raise self._error(reply)
        if errors := reply.get("writeErrors"):
            raise CommandError(int(errors[0]["code"]), str(errors[0].get("errmsg", "")))
        return reply

    async def _abort(self, fields: Mapping[str, Any]) -> None:
        try:
            await self._run({"abortTransaction": 1, **fields}, "admin")
        except CommandError:
            # It has already ended, or ends at the server's time limit for transactions.
            return

    def _error(self, reply: Mapping[str, Any]) -> CommandError:
        error = CommandError(int(reply.get("code", 1)), str(reply.get("errmsg", "")))
        if error.code in NOT_PRIMARY_CODES:
            self._pool.forget_primary()
        return error


def _further(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the commands after the first one."""
    return {name: value for name, value in fields.items() if name not in FIRST_IN_TRANSACTION}


def _ids(first_id: bytes, last_id: bytes) -> dict[str, Any]:
    return {"_id": {"$gte": ObjectId(first_id), "$lte": ObjectId(last_id)}}


def _ids_before(first_id: bytes, last_id: bytes) -> dict[str, Any]:
    return {"_id": {"$gte": ObjectId(first_id), "$lt": ObjectId(last_id)}}


def _counts(found: Sequence[Sequence[bytes]]) -> list[int | None]:
    return [len(stored) or None for stored in found]


def _by_span(documents: Sequence[bytes], spans: Sequence[Span]) -> list[list[bytes]]:
    """``documents`` and ``spans`` are in the order of their ids."""
    found: list[list[bytes]] = []
    at = 0
    for span in spans:
        stored: list[bytes] = []
        while at < len(documents) and (identity := id_of(documents[at])) <= span.last_id:
            if identity >= span.first_id:
                stored.append(documents[at])
            at += 1
        found.append(stored if stored and id_of(stored[-1]) == span.last_id else [])
    return found
