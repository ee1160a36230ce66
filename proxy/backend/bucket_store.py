"""Implements the catalog's port ``BucketStore``: bucket documents in ``<db>.system.buckets.<coll>``."""

from __future__ import annotations

import asyncio
import re
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from bson.binary import Binary
from bson.codec_options import CodecOptions
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument

from catalog.bson.codec import encode
from catalog.bson.raw import fields_of
from catalog.commit.empty_timestamps import has_empty_timestamp, inserting_statement
from catalog.errors import INTERNAL_ERROR, BackendUnavailable, CommandError
from catalog.kernel import Measurement
from catalog.namespaces import Namespace, VirtualCollection
from catalog.parts import PLACE_AT, PREFIX_BYTES, SEGMENT_AT
from catalog.ports import Acknowledgement, Applied, BulkOutcome, Rejected, Unknown, WriteConcern
from proxy.backend.access_probe import BUCKETS_CLOSED
from proxy.backend.collection_uuid_check import CollectionUuidCheck
from proxy.backend.covering import MAX_SECONDS, covering_query
from proxy.backend.driver_calls import DriverCalls, DriverClient
from proxy.backend.parts.part_store import PartStore
from proxy.backend.replication_wait import Attempt, ReplicationWait
from proxy.backend.row_search import RowSearch
from proxy.backend.service import LostAfterSending, NotSent, ServicePool
from proxy.backend.write_concern_waits import ACKNOWLEDGED_FIELDS, WriteConcernWaits, decoded
from proxy.request.own_steps import client_message
from proxy.request.ports import Readers

UNDECIDED_CODES = frozenset({6, 7, 50, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436})
"""Error codes of a member that steps down or shuts down; it may have applied a part of the command."""

OTHER_UUID_CODES = frozenset({26, 361})
"""Error codes for a collection that was dropped, or dropped and created again, since the command was prepared."""

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)

_RESEND_PAUSE_SECONDS = 0.1
_SEND_AGAIN = "the server has closed the namespaces of bucket collections; nothing was written, send the insert again"
_INT64 = struct.Struct("<q").unpack_from


_ID_AS_TEXT: Final = {"$toString": "$_id"}
_START: Final = {"$substrBytes": [_ID_AS_TEXT, 0, 2 * SEGMENT_AT]}
_PLACE: Final = {"$substrBytes": [_ID_AS_TEXT, 2 * PLACE_AT, 2 * (PREFIX_BYTES - PLACE_AT)]}
"""The start and the place in the id of a bucket or part (``catalog.parts``), as hexadecimal digits."""


class MongoBucketStore:
    """``catalog.ports.BucketStore`` on a MongoDB server."""

    def __init__(
        self,
        pool: ServicePool,
        calls: DriverCalls,
        resolve: Callable[[VirtualCollection], Awaitable[VirtualCollection | None]],
        *,
        sends_uuid: bool,
        max_count: int,
        parts: PartStore,
        rows: RowSearch,
        waits: WriteConcernWaits | None = None,
        readers: Readers | None = None,
        closed: Callable[[Namespace], None] = lambda namespace: None,
    ) -> None:
        """``sends_uuid``: the backend supports ``collectionUUID`` (6.0).

        ``waits``: for replica sets. ``readers`` registers this object's own reads of buckets, if parts are joined.
        ``closed`` is called with a bucket namespace that the server refuses as such.
        """
        self._closed = closed
        self.prepare_join = parts.prepare_join
        self._readers = readers
        self._rows = rows
        self._pool = pool
        self._calls = calls
        self._resolve = resolve
        self._sends_uuid = sends_uuid
        self._watch = None if sends_uuid else CollectionUuidCheck(pool)
        self._max_count = max_count
        self._waits = waits
        self._bodies: dict[tuple[str, VirtualCollection, bytes, Attempt], bytes] = {}

    async def insert(
        self,
        collection: VirtualCollection,
        documents: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
    ) -> BulkOutcome:
        if has_empty_timestamp(documents[0]):
            statements = [inserting_statement(document) for document in documents]
            outcome = await self._send("update", "updates", collection, statements, write_concern, deadline_seconds)
        else:
            outcome = await self._send("insert", "documents", collection, documents, write_concern, deadline_seconds)
        if self._watch is None:
            return outcome
        return await self._watch.judge(collection, documents, outcome, deadline_seconds)

    async def update(
        self,
        collection: VirtualCollection,
        statements: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
    ) -> BulkOutcome:
        return await self._send("update", "updates", collection, statements, write_concern, deadline_seconds)

    async def _send(
        self,
        command: str,
        identifier: str,
        collection: VirtualCollection,
        documents: Sequence[bytes],
        write_concern: WriteConcern,
        deadline_seconds: float,
    ) -> BulkOutcome:
        self._rows.writes(collection)

        async def send(attempt: Attempt) -> bytes:
            body = self._body(command, collection, write_concern, attempt)
            return await self._pool.request(body, deadline_seconds, identifier, documents)

        outcome = await bulk_write(self._pool, self._waits, write_concern, collection.buckets, send)
        if isinstance(outcome, Rejected) and outcome.error.code == BUCKETS_CLOSED:
            self._closed(collection.buckets)
            return Rejected(BackendUnavailable(_SEND_AGAIN, code=BUCKETS_CLOSED))
        return outcome

    def _body(
        self, command: str, collection: VirtualCollection, write_concern: WriteConcern, attempt: Attempt
    ) -> bytes:
        key = (command, collection, write_concern.raw, attempt)
        body = self._bodies.get(key)
        if body is None:
            document: dict[str, Any] = {
                command: collection.buckets.collection,
                "ordered": False,
                "bypassDocumentValidation": True,
                "$db": collection.namespace.database,
            }
            if write_concern.raw:
                document["writeConcern"] = RawBSONDocument(write_concern.raw)
            document.update(attempt.value)
            if self._sends_uuid and collection.uuid:
                document["collectionUUID"] = Binary(collection.uuid, 4)
            if len(self._bodies) >= 4096:
                self._bodies.clear()
            body = self._bodies[key] = encode(document)
        return body

    async def fetch(
        self, collection: VirtualCollection, bucket_ids: Sequence[bytes], deadline_seconds: float
    ) -> Mapping[bytes, bytes]:
        query = {"_id": {"$in": [ObjectId(each) for each in bucket_ids]}}
        found = await self._find(collection, query, deadline_seconds)
        # Only the id is decoded: rows may contain values that the driver cannot decode.
        raw = [bytes(document.raw) for document in found]
        return {fields_of(each)[b"_id"][1:]: each for each in raw}

    async def stored_until_ms(self, collection: VirtualCollection, deadline_seconds: float) -> int:
        found = await self._find(
            collection, {}, deadline_seconds, projection={"control": 1}, sort=[("_id", -1)], limit=1
        )
        if not found:
            return -(1 << 63)
        inner = bytes(found[0].raw)
        try:
            for name in (b"control", b"min"):
                inner = fields_of(inner)[name][1:]
            start_ms: int = _INT64(fields_of(inner)[collection.options.time_field.encode()], 1)[0]
        except (KeyError, struct.error):
            # The collection was replaced by one with another time field, or somebody else has stored this.
            raise CommandError(INTERNAL_ERROR, "the latest bucket has no start") from None
        return start_ms

    async def find_reopenable(
        self, collection: VirtualCollection, wanted: Sequence[tuple[bytes, int]], deadline_seconds: float
    ) -> Sequence[bytes]:
        query = reopening_query(collection, wanted, self._max_count)
        return [bytes(document.raw) for document in await self._find(collection, query, deadline_seconds)]

    async def find_parts(
        self, collection: VirtualCollection, since_ms: int, deadline_seconds: float
    ) -> Sequence[Sequence[bytes]]:
        since_seconds = since_ms // 1000
        if not 0 <= since_seconds <= MAX_SECONDS:
            return ()
        return await self._grouped(collection, ObjectId(since_seconds.to_bytes(4, "big") + bytes(8)), deadline_seconds)

    async def _grouped(
        self, collection: VirtualCollection, since: ObjectId, deadline_seconds: float
    ) -> Sequence[Sequence[bytes]]:
        pipeline: list[dict[str, Any]] = [
            {"$match": {"_id": {"$gte": since}, "control.version": 1}},
            {"$group": {"_id": [_START, _PLACE, "$meta"], "ids": {"$push": "$_id"}}},
            {"$match": {"ids.1": {"$exists": True}}},
            # The meta value may be one that the driver cannot decode.
            {"$project": {"_id": 0}},
        ]
        left_seconds = max(deadline_seconds - asyncio.get_running_loop().time(), 0.05)

        async def request(client: DriverClient) -> list[dict[str, Any]]:
            buckets = client[collection.buckets.database][collection.buckets.collection]
            return await (await buckets.aggregate(pipeline, allowDiskUse=True)).to_list()

        found = await self._calls.ask(request, left_seconds, holds_data=True)
        return [sorted(identity.binary for identity in each["ids"]) for each in found]

    async def fetch_family(
        self, collection: VirtualCollection, bucket_id: bytes, prefixes: Sequence[bytes], deadline_seconds: float
    ) -> Sequence[bytes]:
        width = 12 - PREFIX_BYTES
        family: list[bytes] = []
        if not prefixes:
            start, place = bucket_id[:SEGMENT_AT], bucket_id[PLACE_AT:PREFIX_BYTES].hex()
            ids = {"$gte": ObjectId(start + bytes(8)), "$lte": ObjectId(start + b"\xff" * 8)}
            query = {"_id": ids, "$expr": {"$eq": [_PLACE, place]}}
            return [bytes(document.raw) for document in await self._find(collection, query, deadline_seconds)]
        # One by one, because a server scans everything between several ranges of a clustered collection. Rows are moved
        # to documents of later segments only, so a join meanwhile hides none.
        for prefix in prefixes:
            ids = {"$gte": ObjectId(prefix + bytes(width)), "$lte": ObjectId(prefix + b"\xff" * width)}
            family += [bytes(document.raw) for document in await self._find(collection, {"_id": ids}, deadline_seconds)]
        return family

    async def stored_rows(
        self, collection: VirtualCollection, measurements: Sequence[Measurement], deadline_seconds: float
    ) -> Mapping[bytes, int]:
        # In this order: joins wait for what is registered as a reader.
        async with self._rows.turn(collection, deadline_seconds), self._reading(collection):
            return await self._rows.stored(collection, measurements, deadline_seconds)

    async def earlier_rows(
        self,
        collection: VirtualCollection,
        measurements: Sequence[Measurement],
        window_seconds: float,
        deadline_seconds: float,
        *,
        until_now: bool = False,
    ) -> Mapping[bytes, int]:
        async with self._rows.turn(collection, deadline_seconds), self._reading(collection):
            return await self._rows.earlier(
                collection, measurements, window_seconds, deadline_seconds, until_now=until_now
            )

    async def resolve(self, collection: VirtualCollection) -> VirtualCollection | None:
        return await self._resolve(collection)

    async def _find(
        self, collection: VirtualCollection, query: Mapping[str, Any], deadline_seconds: float, **options: Any
    ) -> list[RawBSONDocument]:
        async with self._reading(collection):
            return await self._found(collection, query, deadline_seconds, options)

    @asynccontextmanager
    async def _reading(self, collection: VirtualCollection) -> AsyncIterator[None]:
        """Register as a reader, so that the catalog's own reads find every row while parts are joined."""
        if self._readers is None:
            yield
            return
        reader = self._readers.of_rewritten(collection.namespace)
        await reader.admitted()
        reader.enter()
        try:
            yield
        finally:
            reader.leave(b"")

    async def _found(
        self,
        collection: VirtualCollection,
        query: Mapping[str, Any],
        deadline_seconds: float,
        options: Mapping[str, Any],
    ) -> list[RawBSONDocument]:
        def request(client: DriverClient) -> Awaitable[list[RawBSONDocument]]:
            buckets = client[collection.buckets.database].get_collection(
                collection.buckets.collection, codec_options=RAW
            )
            return buckets.find(query, **options).to_list()

        left_seconds = max(deadline_seconds - asyncio.get_running_loop().time(), 0.05)
        return await self._calls.ask(request, left_seconds, holds_data=True)


PLAIN_SUCCESS = re.compile(
    rb".{4}\x10n\0(.{4})(?:\x10nModified\0.{4})?\x01ok\0" + re.escape(struct.pack("<d", 1.0)) + rb"\0", re.DOTALL
)
"""The usual reply of a standalone to a bulk write: success without errors."""


async def bulk_write(
    pool: ServicePool,
    waits: WriteConcernWaits | None,
    write_concern: WriteConcern,
    confirmed_in: Namespace,
    send: Callable[[Attempt], Awaitable[bytes]],
    message_of: Callable[[Mapping[str, Any]], str] | None = None,
) -> BulkOutcome:
    """Send a bulk write over ``pool`` with ``send``, which returns the reply; its outcome.

    Where there are ``waits``, the write concern is waited for in ``confirmed_in``. ``message_of``: see ``outcome_of``.
    """
    wait: ReplicationWait | None = None
    sent_at_seconds = time.perf_counter()
    try:
        if waits is None:
            reply = await send(Attempt.AS_IT_IS)
            if (plain := PLAIN_SUCCESS.fullmatch(reply)) is not None:
                acknowledgement = Acknowledgement(
                    sent_at_seconds=sent_at_seconds, answered_at_seconds=time.perf_counter()
                )
                return Applied(int.from_bytes(plain[1], "little"), {}, acknowledgement)
            said: Mapping[str, Any] = decoded(reply)
        else:
            said, wait = await waits.write(write_concern, confirmed_in, send)
    except NotSent as error:
        return Rejected(error)
    except LostAfterSending as error:
        await asyncio.sleep(_RESEND_PAUSE_SECONDS)
        return Unknown(error)
    except CommandError as error:
        # The proxy's account could not authenticate.
        return Rejected(error)
    outcome = outcome_of(said, wait, sent_at_seconds, message_of)
    if isinstance(outcome, Unknown):
        pool.forget_primary()
        await asyncio.sleep(_RESEND_PAUSE_SECONDS)
    return outcome


def outcome_of(
    reply: Mapping[str, Any],
    wait: ReplicationWait | None = None,
    sent_at_seconds: float = 0.0,
    message_of: Callable[[Mapping[str, Any]], str] | None = None,
) -> BulkOutcome:
    """The outcome that the reply to a bulk write, which has just arrived, reports.

    With ``wait``, the write concern is still waited for. ``sent_at_seconds``: see ``Acknowledgement``.
    ``message_of``: the text of the error of one document for its client.
    """
    if not reply.get("ok"):
        error = CommandError(
            int(reply.get("code", 1)),
            _client_message(reply),
            labels=tuple(reply.get("errorLabels", ())),
            fails_command=True,
        )
        return Unknown(error) if error.code in UNDECIDED_CODES else Rejected(error)
    errors = {
        int(entry["index"]): CommandError(int(entry["code"]), (message_of or _client_message)(entry))
        for entry in reply.get("writeErrors", ())
    }
    for error in errors.values():
        if error.code in OTHER_UUID_CODES:
            # The error concerns the whole command; documents written before it were dropped with the collection.
            return Rejected(error)
        if error.code in UNDECIDED_CODES:
            return Unknown(error)
    concern = reply.get("writeConcernError") if wait is None else None
    if concern is not None and concern.get("code") in UNDECIDED_CODES:
        # The primary stepped down before the write was replicated, so the write may be rolled back.
        return Unknown(CommandError(int(concern["code"]), _client_message(concern), fails_command=True))
    answered_at_seconds = time.perf_counter()
    if wait is not None:
        wait.sent_at_seconds, wait.answered_at_seconds = sent_at_seconds, answered_at_seconds
    fields: Mapping[str, Any] = {}
    if len(reply) > 3 or "writeConcernError" in reply:
        fields = {name: reply[name] for name in ACKNOWLEDGED_FIELDS if name in reply}
    acknowledgement = Acknowledgement(concern, fields, wait, sent_at_seconds, answered_at_seconds)
    return Applied(int(reply["n"]), errors, acknowledgement)


def _client_message(error: Mapping[str, Any]) -> str:
    """The error message for clients, without values: a commit contains measurements of many clients."""
    return client_message(int(error.get("code", 1)), str(error.get("errmsg", "")), holds_data=True)


def reopening_query(
    collection: VirtualCollection, wanted: Sequence[tuple[bytes, int]], max_count: int
) -> dict[str, Any]:
    """The query for buckets that may accept one of ``wanted`` (meta element, time in ms) (W50)."""
    query = {"control.version": 1, "control.closed": {"$ne": True}, **covering_query(collection, wanted)}
    field = collection.options.time_field
    if field and "." not in field and not field.startswith("$"):
        query[f"data.{field}.{max_count - 1}"] = {"$exists": False}
    return query
