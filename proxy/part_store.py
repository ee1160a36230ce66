"""How the backend joins the parts of a bucket in one atomic step (``catalog.ports.BucketStore.join``).

A replica set does it in a transaction. A standalone has none, but applies an ``applyOps`` of inserts and deletes
as a whole. It does not notice other writers, so parts are closed for them (``control.closed``) before they are
read, and it is told to do nothing unless they are still what was read: each of them where other processes of the
proxy may take out single rows; where there are none, what the server's own writes would change. Those choose by meta,
which parts of a bucket have in common, and go through them in the order of their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from bson.binary import Binary
from bson.int64 import Int64
from bson.objectid import ObjectId

from catalog.bson.codec import decode, encode
from catalog.bson.raw import (
    ARRAY,
    OBJECT,
    REGEX,
    UNDEFINED,
    document,
    documents_of,
    element,
    fields_of,
    string_value,
    sub_array,
    sub_document,
)
from catalog.errors import WRITE_CONFLICT, CommandError
from catalog.merging import is_closed
from catalog.namespaces import VirtualCollection
from proxy.not_primary import NOT_PRIMARY_CODES
from proxy.service import ServicePool
from rewrite.profile import Profile

LARGEST_JOIN_BYTES = 7 * 1024 * 1024
"""A standalone gets parts twice in one command, to compare and to store, and takes 16 MB."""
REPLICATION_MS = 500
"""How long readers wait for a join to reach the members that they read from."""

_ID = b"\x07_id\0"

_STILL_CLOSED = encode({"$v": 2, "diff": {"scontrol": {"u": {"closed": True}}}})
"""A change, as an oplog says it, that leaves a closed bucket as it is."""

_OPENED_OR_COMPRESSED = (
    encode({"control.closed": {"$ne": True}}),
    encode({"control.version": {"$ne": 1}}),
)
_NONE_FOUND = encode({"_id": {"$exists": False}})

CONDITIONS = frozenset({UNDEFINED, REGEX})
"""BSON types that mean something else in a query: undefined, regular expressions."""

Merge = Callable[[Sequence[bytes]], bytes]


def joins_atomically(profile: Profile) -> tuple[bool, bool]:
    """Whether this backend can join parts at all, and whether they have to be closed for that.

    Servers from 7.0 on leave closed buckets out of deletes, so their standalones cannot.
    """
    if profile.is_mongos or not profile.has_native_timeseries:
        return False, False
    if profile.is_replica_set:
        return True, False
    return profile.deletes_from_closed_buckets, True


class PartStore:
    """Joins, over service connections."""

    def __init__(
        self,
        pool: ServicePool,
        *,
        transactions: bool,
        members_read: Callable[[], int] = lambda: 1,
        alone: Callable[[], bool] = lambda: False,
    ) -> None:
        """``members_read``: how many members shall have a join when it is acknowledged.

        ``alone``: whether no other process of the proxy writes.
        """
        self._members_read = members_read
        self._alone = alone
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
            return await step.in_one_operation(alone=self._alone())
        session, number = self._sessions.pop() if self._sessions else (Binary(uuid4().bytes, 4), 0)
        try:
            fields = {"lsid": {"id": session}, "txnNumber": Int64(number + 1)}
            return await step.in_transaction(fields, self._members_read())
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
        self._place = {"ns": str(self._buckets), "ui": Binary(collection.uuid, 4) if collection.uuid else None}
        self._first_id, self._last_id = first_id, last_id
        self._range = {"_id": {"$gte": ObjectId(first_id), "$lte": ObjectId(last_id)}}
        self._merge = merge
        self._deadline_seconds = deadline_seconds

    async def in_one_operation(self, *, alone: bool) -> int | None:
        """For a standalone; ``alone``: see ``PartStore``."""
        # Parts are closed when they are written; the document that they follow is not.
        await self._seal({"_id": ObjectId(self._first_id)})
        stored = await self._stored({})
        if not all(map(is_closed, stored)):
            await self._seal(self._range)
            stored = await self._stored({})
        if len(stored) < 2:
            return len(stored) or None
        if not all(map(is_closed, stored)):
            # Another process joined some of them just now, and its result is open for appends.
            raise CommandError(WRITE_CONFLICT, "parts were joined meanwhile")
        if sum(map(len, stored)) > LARGEST_JOIN_BYTES:
            raise ValueError("parts that are too large for one operation")
        guard = self._natively_unchanged(stored) if alone else None
        body = self._operations(stored, self._merge(stored), guard or self._unchanged(stored))
        self._checked(await self._pool.request(body, self._deadline_seconds))
        return len(stored)

    async def _seal(self, which: Mapping[str, Any]) -> None:
        not_closed = {**which, "control.closed": {"$ne": True}}
        seal = {"q": not_closed, "u": {"$set": {"control.closed": True}}, "multi": True}
        await self._run({"update": self._buckets.collection, "updates": [seal]})

    def _operations(self, stored: Sequence[bytes], joined: bytes, conditions: Sequence[bytes]) -> bytes:
        """The ``applyOps`` that puts the joined document into the place of these; raw, for there may be many.

        It fails when the first of them is gone, for an update that changes nothing asks for it.
        """
        place = [element(name, value) for name, value in fields_of(encode(self._place)).items()]
        insert = document([element(b"op", string_value(b"i")), *place, element(b"o", b"\x03" + joined)])
        # Deletes differ in nothing but the id, which stands at the end before two terminators.
        delete = document([element(b"op", string_value(b"d")), *place, sub_document(b"o", [_ID + bytes(12)])])[:-14]
        exists = document(
            [
                element(b"op", string_value(b"u")),
                *place,
                sub_document(b"o2", [_ID + _id_of(stored[0])]),
                element(b"o", b"\x03" + _STILL_CLOSED),
            ]
        )
        operations = [b"\x03" + exists, *(b"\x03%b%b\0\0" % (delete, _id_of(each)) for each in stored)]
        return document(
            [
                sub_array(b"applyOps", [*operations, b"\x03" + insert]),
                sub_array(b"preCondition", [b"\x03" + each for each in conditions]),
                element(b"alwaysUpsert", b"\x08\0"),
                element(b"$db", string_value(b"admin")),
            ]
        )

    def _natively_unchanged(self, stored: Sequence[bytes]) -> list[bytes] | None:
        """A condition that no document has another meta, or was compressed or opened; ``None``: no such condition."""
        meta = fields_of(stored[0]).get(b"meta")
        if meta is not None and (meta[0] == ARRAY or not _is_value(meta)):
            return None
        test = element(b"$exists", b"\x08\1") if meta is None else element(b"$ne", meta)
        other_meta = document([sub_document(b"meta", [test])])
        changed = [b"\x03" + each for each in (other_meta, *_OPENED_OR_COMPRESSED)]
        query = [*(element(*field) for field in fields_of(encode(self._range)).items()), sub_array(b"$or", changed)]
        place = element(b"ns", string_value(str(self._buckets).encode()))
        return [document([place, sub_document(b"q", query), element(b"res", b"\x03" + _NONE_FOUND)])]

    def _unchanged(self, stored: Sequence[bytes]) -> list[bytes]:
        """Conditions that each document is what was read."""
        namespace = element(b"ns", string_value(str(self._buckets).encode()))
        meta = fields_of(stored[0]).get(b"meta", b"\x0a")
        # A document is a condition that it fulfils itself, but for values that look like one.
        is_plain = _is_value(meta)
        return [
            document(
                [
                    namespace,
                    sub_document(b"q", [_ID + _id_of(each)]),
                    b"\x03res\0%b" % (each if is_plain else _equal_to(each)),
                ]
            )
            for each in stored
        ]

    async def in_transaction(self, session: Mapping[str, Any], members: int) -> int | None:
        """For a replica set; ``session`` has ``lsid`` and ``txnNumber``; ``members`` shall have it in the end."""
        fields = {**session, "autocommit": False}
        try:
            stored = await self._stored({**fields, "startTransaction": True, "readConcern": {"level": "snapshot"}})
            if len(stored) < 2:
                await self._abort(fields)
                return len(stored) or None
            joined = self._merge(stored)
            statement = {"q": self._range, "limit": 0}
            deleted = await self._run({"delete": self._buckets.collection, "deletes": [statement], **fields})
            if deleted["n"] != len(stored):
                await self._abort(fields)
                return None
            await self._run({"insert": self._buckets.collection, **fields}, "", "documents", (joined,))
            concern = {"writeConcern": {"w": members, "wtimeout": REPLICATION_MS}} if members > 1 else {}
            await self._run({"commitTransaction": 1, **fields, **concern}, "admin")
        except (CommandError, ValueError):
            await self._abort(fields)
            raise
        return len(stored)

    async def _stored(self, fields: Mapping[str, Any]) -> list[bytes]:
        """The documents from the first to the last; none when the last is not there."""
        body = {
            "find": self._buckets.collection,
            "filter": self._range,
            "batchSize": 100_000,
            "singleBatch": True,
            **fields,
            "$db": self._buckets.database,
        }
        reply = await self._pool.request(encode(body), self._deadline_seconds)
        cursor = fields_of(reply).get(b"cursor")
        if cursor is None:
            raise self._error(decode(reply))
        found = documents_of(fields_of(cursor, 1)[b"firstBatch"], 1)
        if found and _id_of(found[-1]) != self._last_id:
            return []
        return found

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
            # It was ended already, or ends by itself when the server's time limit for transactions is over.
            return

    def _error(self, reply: Mapping[str, Any]) -> CommandError:
        error = CommandError(int(reply.get("code", 1)), str(reply.get("errmsg", "")))
        if error.code in NOT_PRIMARY_CODES:
            self._pool.forget_primary()
        return error


def _id_of(document: bytes) -> bytes:
    """Servers keep ``_id`` in front; raises ``ValueError`` for one that is no object id."""
    if not document.startswith(_ID, 4):
        raise ValueError("a bucket whose _id is no ObjectId")
    return document[9:21]


def _is_value(meta: bytes) -> bool:
    """Whether it means itself where conditions may stand."""
    return meta[0] not in CONDITIONS and not (meta[0] == OBJECT and meta[6:7] == b"$")


def _equal_to(stored: bytes) -> bytes:
    """A condition that every value is what it is here."""
    return document([sub_document(name, [element(b"$eq", value)]) for name, value in fields_of(stored).items()])
