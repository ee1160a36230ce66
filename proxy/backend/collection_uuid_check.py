"""Checks that new buckets went to the right collection, with servers that lack ``collectionUUID`` (before 6.0).

If a collection is dropped outside of the proxy, an ``insert`` of buckets creates a plain collection of that name, where
nobody finds the rows and which makes the next ``create`` fail with 48 (H7). So after each insert the proxy looks up
which collection the name refers to. If it is another one, the buckets are deleted, a plain collection that is empty
then is dropped by its UUID (so that no other collection is affected), and the reply is that of later servers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bson.binary import Binary
from bson.objectid import ObjectId

from catalog.bson import raw
from catalog.bson.codec import decode, encode
from catalog.errors import UUID_MISMATCH, CommandError
from catalog.namespaces import VirtualCollection
from catalog.ports import Applied, BulkOutcome, Rejected, Unknown
from proxy.backend.service import ServicePool
from proxy.request.own_steps import client_message


class CollectionUuidCheck:
    """Checks inserts of new buckets."""

    def __init__(self, pool: ServicePool) -> None:
        self._pool = pool

    async def judge(
        self, collection: VirtualCollection, documents: Sequence[bytes], outcome: BulkOutcome, deadline_seconds: float
    ) -> BulkOutcome:
        """The outcome of inserting ``documents``, after looking up the name.

        ``Unknown`` if the look-up did not succeed in time; the insert may be repeated.
        """
        if not isinstance(outcome, Applied) or not collection.uuid:
            return outcome
        try:
            entry = await self._entry(collection, deadline_seconds)
            if entry is not None and bytes(entry["info"]["uuid"]) == collection.uuid:
                return outcome
            if entry is not None:
                await self._take_back(collection, documents, entry, deadline_seconds)
        except CommandError as error:
            return Unknown(error)
        return Rejected(CommandError(UUID_MISMATCH, "Collection UUID does not match that specified"))

    async def _entry(self, collection: VirtualCollection, deadline_seconds: float) -> dict[str, Any] | None:
        body = {"listCollections": 1, "filter": {"name": collection.buckets.collection}}
        reply = await self._run(collection.namespace.database, body, deadline_seconds)
        return next(iter(reply["cursor"]["firstBatch"]), None)

    async def _take_back(
        self,
        collection: VirtualCollection,
        documents: Sequence[bytes],
        entry: Mapping[str, Any],
        deadline_seconds: float,
    ) -> None:
        buckets = collection.buckets
        ids = [ObjectId(raw.fields_of(document)[b"_id"][1:]) for document in documents]
        deletion = {"delete": buckets.collection, "deletes": [{"q": {"_id": {"$in": ids}}, "limit": 0}]}
        await self._run(buckets.database, deletion, deadline_seconds)
        if "timeseries" in entry["options"]:
            return
        left = await self._run(buckets.database, {"find": buckets.collection, "limit": 1}, deadline_seconds)
        if left["cursor"]["firstBatch"]:
            return
        uuid = Binary(bytes(entry["info"]["uuid"]), 4)
        drop = {"op": "c", "ns": f"{buckets.database}.$cmd", "ui": uuid, "o": {"drop": buckets.collection}}
        await self._run("admin", {"applyOps": [drop]}, deadline_seconds, may_fail=True)

    async def _run(
        self, database: str, body: Mapping[str, Any], deadline_seconds: float, *, may_fail: bool = False
    ) -> dict[str, Any]:
        reply = decode(await self._pool.request(encode({**body, "$db": database}), deadline_seconds))
        if not reply.get("ok") and not may_fail:
            code = int(reply.get("code", 1))
            raise CommandError(code, client_message(code, str(reply.get("errmsg", "")), holds_data=True))
        return dict(reply)
