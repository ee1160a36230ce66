"""Joins the parts of buckets in one atomic step of the backend (``catalog.ports.BucketStore.prepare_join``).

On a replica set, the step is a transaction, of which nobody sees anything before its commit. A standalone has none, but
executes an ``applyOps`` of inserts and deletes as a whole (``proxy.backend.parts.join_operations``). This does not
detect other writers, so parts are closed for them (``control.closed``) before they are read, and the command has
conditions that they are still what was read. These are chosen when it is sent, as this process may have deleted or
updated measurements meanwhile, or another one may have appeared.
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
from catalog.bson.raw import documents_of, fields_of, unpack_int64
from catalog.commit.empty_timestamps import has_empty_timestamp
from catalog.errors import WRITE_CONFLICT, CommandError
from catalog.kernel.merging import is_closed
from catalog.namespaces import VirtualCollection
from catalog.parts import IdRange, id_of
from catalog.ports import Found, PreparedJoin, Span
from proxy.backend.parts.direct_writes import DirectWrites
from proxy.backend.parts.join_operations import Replacement, apply_ops, update_of_the_last
from proxy.backend.parts.readings import RangeDocuments, by_span, ranges_of, windows
from proxy.backend.service import ServicePool
from proxy.request.own_steps import client_message
from proxy.upstream.not_primary import NOT_PRIMARY_CODES
from rewrite.profile import Profile

LARGEST_JOIN_BYTES = 7 * 1024 * 1024
"""A command to a standalone, of at most 16 MB, contains the rows twice: to compare and to store."""

LARGE_BYTES = 32 * 1024
"""From this size on, merging and compressing run in a thread: most of it does not need the interpreter."""
_merging = ThreadPoolExecutor(max_workers=1, thread_name_prefix="merging")

FIRST_IN_TRANSACTION = frozenset({"startTransaction", "readConcern"})
"""Fields that only the first command of a transaction has."""

READ_FOR_ONE = 8
"""Reading this many documents costs a server less than a separate command for one."""


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
    """Prepares joins over service connections."""

    def __init__(
        self,
        pool: ServicePool,
        *,
        transactions: bool,
        alone: Callable[[], bool] = lambda: False,
        direct_writes: DirectWrites | None = None,
    ) -> None:
        """``alone``: whether no other process of the proxy writes; ``direct_writes``: a record of those of this one."""
        self._alone = alone
        self.direct_writes = direct_writes or DirectWrites()
        """The collections whose measurements this process deletes or updates have to be noted here."""
        self._pool = pool
        self._transactions = transactions
        self._sessions: list[_Session] = []
        """Free sessions; servers limit the number of sessions."""

    async def prepare_join(
        self, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> PreparedJoin:
        step = _Step(self._pool, collection, spans, deadline_seconds)
        if not self._transactions:
            return await step.operation(self._alone, self.direct_writes)
        session = self._sessions.pop() if self._sessions else _Session()
        session.number += 1
        try:
            return await step.transaction(session, self._sessions.append)
        except BaseException:
            self._sessions.append(session)
            raise


class _Session:
    """A session of the server, with its latest transaction number."""

    __slots__ = ("identity", "number")

    def __init__(self) -> None:
        self.identity = Binary(uuid4().bytes, 4)
        self.number = 0


class _Transaction:
    """A transaction that has replaced the documents and is not committed yet; implements ``PreparedJoin``."""

    is_carried_out_by_commit = False

    def __init__(
        self,
        step: _Step,
        session: _Session,
        free: Callable[[_Session], object],
        found: Sequence[Sequence[bytes]],
    ) -> None:
        self.found = _found(found)
        self._changes = any(len(stored) > 1 for stored in found)
        self._step = step
        self._session = session
        self._free = free

    async def commit(self) -> None:
        if not self._changes:
            await self.abandon()
            return
        # Nobody was promised a join: if it is rolled back, its parts are there again, with the same rows. Reads from
        # other members wait until these have it (``proxy.members.joins_applied``).
        try:
            await self._step.run(
                {"commitTransaction": 1, **in_session(self._session), "writeConcern": {"w": 1}}, "admin"
            )
        except CommandError:
            await self._step.abort(self._session)
            raise
        finally:
            self._free(self._session)

    async def abandon(self) -> None:
        try:
            await self._step.abort(self._session)
        finally:
            self._free(self._session)


class _Operation:
    """An ``applyOps`` command that is not sent yet; implements ``PreparedJoin``."""

    is_carried_out_by_commit = True

    def __init__(
        self,
        step: _Step,
        found: Sequence[Sequence[bytes]],
        body: bytes | None,
        body_if_disturbed: Callable[[], bytes | None],
    ) -> None:
        """``body_if_disturbed``: what to send instead because of what has happened meanwhile, if anything."""
        self.found = _found(found)
        self._step = step
        self._body = body
        self._body_if_disturbed = body_if_disturbed

    async def commit(self) -> None:
        if self._body is not None:
            await self._step.apply(self._body_if_disturbed() or self._body)

    async def abandon(self) -> None:
        """Nothing was sent."""


class _Step:
    def __init__(
        self, pool: ServicePool, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> None:
        self._pool = pool
        self._collection = collection
        self._buckets = collection.buckets
        self._spans = spans
        self._deadline_seconds = deadline_seconds

    async def operation(self, alone: Callable[[], bool], direct_writes: DirectWrites) -> _Operation:
        """For a standalone; ``alone`` and ``direct_writes``: see ``PartStore``."""
        namespace, since_seconds = self._collection.namespace, direct_writes.now()
        is_alone = alone() and not direct_writes.are_recent(namespace)
        # Parts are closed when they are written, and so are runs until the last join; what that has made, and the
        # document before the first part, are open.
        if unsealed := [{"_id": ObjectId(each)} for span in self._spans for each in span.unsealed]:
            await self._seal(unsealed)
        readings = await self._read()
        found = by_span(readings, self._spans)
        if opened := [span for span, stored in zip(self._spans, found, strict=True) if _is_open(stored)]:
            await self._seal([_ids(each) for span in opened for each in span.ranges])
            readings = await self._read()
            found = by_span(readings, self._spans)
        if any(map(_is_open, found)):
            # Another process joined some of them just now, and its result is open for appends.
            raise CommandError(WRITE_CONFLICT, "parts were joined meanwhile")
        if sum(len(each) for stored in found for each in stored) > LARGEST_JOIN_BYTES:
            raise ValueError("parts that are too large for one operation")
        replacements = await self._merged(found)
        body = apply_ops(self._collection, readings, replacements, alone=is_alone) if replacements else None

        def body_if_disturbed() -> bytes | None:
            if is_alone and (not alone() or direct_writes.since(namespace, since_seconds)):
                return apply_ops(self._collection, readings, replacements, alone=False)
            return None

        return _Operation(self, found, body, body_if_disturbed)

    async def apply(self, body: bytes) -> None:
        """Send what replaces the documents."""
        self._checked(await self._pool.request(body, self._deadline_seconds))

    async def _seal(self, which: Sequence[Mapping[str, Any]]) -> None:
        seals = [
            {
                "q": {**each, "control.closed": {"$ne": True}},
                "u": {"$set": {"control.closed": True}},
                "multi": True,
            }
            for each in which
        ]
        await self.run({"update": self._buckets.collection, "updates": seals})

    async def transaction(self, session: _Session, free: Callable[[_Session], object]) -> _Transaction:
        """For a replica set; ``free`` gets the session after the commit."""
        fields = in_session(session)
        try:
            readings = await self._read({**fields, "startTransaction": True, "readConcern": {"level": "snapshot"}})
            found = by_span(readings, self._spans)
            if replacements := await self._merged(found):
                await self._replace(readings, replacements, fields)
        except Exception:
            await self.abort(session)
            raise
        return _Transaction(self, session, free, found)

    async def _replace(
        self, readings: Sequence[RangeDocuments], replacements: Sequence[Replacement], fields: Mapping[str, Any]
    ) -> None:
        """Delete what was joined, and insert what was made of it, with few statements."""
        # A join reads and writes one state of the data, so the meta value that was read is that of the new document.
        inserted = [each for each in replacements if not has_empty_timestamp(each.joined)]
        updated = [each for each in replacements if has_empty_timestamp(each.joined)]
        gone = {id_of(stored) for each in inserted for stored in each.stored}
        gone.update(id_of(stored) for each in updated for stored in each.stored[:-1])
        statements = [{"q": each, "limit": 0} for reading in readings for each in _queries(reading, gone)]
        buckets = self._buckets.collection
        reply = await self.run({"delete": buckets, "deletes": statements, **fields})
        if reply["n"] != len(gone):
            raise CommandError(WRITE_CONFLICT, "parts were changed meanwhile")
        if inserted:
            body = {"insert": buckets, "bypassDocumentValidation": True, **fields}
            await self.run(body, "", "documents", [each.joined for each in inserted])
        if updated:
            await self.run({"update": buckets, **fields}, "", "updates", [update_of_the_last(each) for each in updated])

    async def _merged(self, found: Sequence[Sequence[bytes]]) -> list[Replacement]:
        def merge() -> list[Replacement]:
            pairs = zip(self._spans, found, strict=True)
            return [Replacement(stored, span.merge(stored)) for span, stored in pairs if len(stored) > 1]

        if sum(len(each) for stored in found for each in stored) < LARGE_BYTES:
            return merge()
        return await asyncio.get_running_loop().run_in_executor(_merging, merge)

    async def _read(self, fields: Mapping[str, Any] | None = None) -> list[RangeDocuments]:
        """All documents of the spans, and few others between them; ``fields`` of the transaction, if there is one."""
        readings: list[RangeDocuments] = []
        for window, ranges in windows(self._spans):
            if len(ranges) > 1:
                limit = READ_FOR_ONE * (window.documents + len(ranges))
                documents, cursor_id = await self._between(window, limit, fields or {})
                fields = _further(fields)
                if not cursor_id and len(documents) < limit:
                    readings.append(documents)
                    continue
                # Much of others is between them.
                await self._kill(cursor_id, fields or {})
            for each in ranges:
                readings.append(await self._all_between(each, fields or {}))
                fields = _further(fields)
        return readings

    async def _all_between(self, ids: IdRange, fields: Mapping[str, Any]) -> list[bytes]:
        documents, cursor_id = await self._between(ids, 0, fields)
        while cursor_id:
            body = {"getMore": Int64(cursor_id), "collection": self._buckets.collection, **(_further(fields) or {})}
            more, cursor_id = await self._batch(body, b"nextBatch")
            documents += more
        return documents

    async def _between(self, ids: IdRange, limit: int, fields: Mapping[str, Any]) -> tuple[list[bytes], int]:
        """The documents with these ids, at most ``limit`` if it is not 0, and the id of the cursor for more of them."""
        body = {"find": self._buckets.collection, "filter": _ids(ids), "batchSize": 100_000, **fields}
        return await self._batch(body | ({"limit": limit} if limit else {}), b"firstBatch")

    async def _batch(self, body: Mapping[str, Any], name: bytes) -> tuple[list[bytes], int]:
        raw = encode({**body, "$db": self._buckets.database})
        reply = await self._pool.request(raw, self._deadline_seconds)
        cursor = fields_of(reply).get(b"cursor")
        if cursor is None:
            raise self._error(decode(reply))
        fields = fields_of(cursor, 1)
        return documents_of(fields[name], 1), unpack_int64(fields[b"id"], 1)[0]

    async def _kill(self, cursor_id: int, fields: Mapping[str, Any]) -> None:
        # The cursor of a transaction ends with it.
        if cursor_id and not fields:
            await self.run({"killCursors": self._buckets.collection, "cursors": [Int64(cursor_id)]})

    async def run(
        self, body: Mapping[str, Any], database: str = "", identifier: str = "", documents: Sequence[bytes] = ()
    ) -> dict[str, Any]:
        """Send a command; raises ``CommandError`` for every error in its reply."""
        raw = encode({**body, "$db": database or self._buckets.database})
        return self._checked(await self._pool.request(raw, self._deadline_seconds, identifier, documents))

    def _checked(self, raw: bytes) -> dict[str, Any]:
        reply = decode(raw)
        if not reply.get("ok"):
            raise self._error(reply)
        if errors := reply.get("writeErrors"):
            raise _own_error(errors[0])
        return reply

    async def abort(self, session: _Session) -> None:
        """End the transaction without changes."""
        try:
            await self.run({"abortTransaction": 1, **in_session(session)}, "admin")
        except CommandError:
            # It has already ended, or ends at the server's time limit for transactions.
            return

    def _error(self, reply: Mapping[str, Any]) -> CommandError:
        error = _own_error(reply)
        if error.code in NOT_PRIMARY_CODES:
            self._pool.forget_primary()
        return error


def _own_error(error: Mapping[str, Any]) -> CommandError:
    """The message is logged, and the server's quotes the command, with the measurements that are joined."""
    code = int(error.get("code", 1))
    return CommandError(code, client_message(code, str(error.get("errmsg", "")), holds_data=True))


def in_session(session: _Session) -> dict[str, Any]:
    """The fields of the commands of its transaction."""
    return {"lsid": {"id": session.identity}, "txnNumber": Int64(session.number), "autocommit": False}


def _further(fields: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The fields of the commands after the first one."""
    return fields and {name: value for name, value in fields.items() if name not in FIRST_IN_TRANSACTION}


def _queries(reading: RangeDocuments, gone: set[bytes]) -> list[dict[str, Any]]:
    """Queries for the documents of this reading that go: by ranges, or if these are many, by their ids within one."""
    ranges = ranges_of(reading, gone)
    documents = sum(each.documents for each in ranges)
    if READ_FOR_ONE * len(ranges) <= documents + READ_FOR_ONE:
        return [_ids(each) for each in ranges]
    ids = [ObjectId(identity) for identity in map(id_of, reading) if identity in gone]
    return [{"_id": {"$gte": ids[0], "$lte": ids[-1], "$in": ids}}]


def _ids(ids: IdRange) -> dict[str, Any]:
    return {"_id": {"$gte": ObjectId(ids.first_id), "$lte": ObjectId(ids.last_id)}}


def _is_open(stored: Sequence[bytes]) -> bool:
    """Whether these are to be joined, and some of them are open for appends."""
    return len(stored) > 1 and not all(map(is_closed, stored))


def _found(found: Sequence[Sequence[bytes]]) -> list[Found | None]:
    return [Found(len(stored), id_of(stored[-1])) if stored else None for stored in found]
