"""Lets go of open buckets: the action ``close``.

The buckets leave the catalog, and ``control.closed`` is set in their stored documents, so that neither this proxy nor
another one, nor a server, adds measurements to them. Guards detect appends that are on their way: their measurements go
to new buckets. The parts of a bucket are one document after their join, which is closed, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import bson
from bson import ObjectId

from catalog.buckets.open_bucket import Bucket, CollectionBuckets
from catalog.catalog import BucketCatalog
from catalog.errors import CommandError
from catalog.namespaces import VirtualCollection
from catalog.parts import PREFIX_BYTES
from proxy.admin.arguments import Call
from proxy.admin.catalog_views import Open, buckets_of
from proxy.admin.handler import Action
from proxy.request.own_steps import client_message

CLOSED_AT_ONCE: Final = 200
"""Buckets that are closed with one command."""
JOIN_SECONDS: Final = 10.0
"""How long the reply waits until the parts of closed buckets are joined."""
COMMIT_SECONDS: Final = 30.0
"""How long it waits for commits in progress."""
LOOK_SECONDS: Final = 0.02

RunRaw = Callable[[str, Mapping[str, Any]], Awaitable[bytes]]
"""Runs a command with the proxy's own account, and returns the reply; raises ``CommandError``."""


class Closing:
    """The action that closes buckets."""

    def __init__(self, catalog: BucketCatalog, opened: Open, kick: Callable[[], None], run: RunRaw) -> None:
        """``kick`` starts the commits of what was placed again."""
        self._catalog = catalog
        self._open = opened
        self._kick = kick
        self._run = run

    @property
    def actions(self) -> Mapping[str, Action]:
        """The action by its name."""
        return {"close": self._close}

    async def _close(self, call: Call) -> Mapping[str, Any]:
        await self._open.shows_meta(call)
        buckets = await self._open.collection(call)
        closed: list[Bucket] = []
        if buckets is not None:
            found = [bucket async for series in self._open.series(call, buckets) for bucket in buckets_of(series)]
            for start in range(0, len(found), CLOSED_AT_ONCE):
                closed += await self._let_go(buckets, found[start : start + CLOSED_AT_ONCE])
            unjoined = await self._close_joined(buckets, [bucket for bucket in closed if bucket.parts is not None])
        else:
            unjoined = 0
        return {"collection": str(call.namespace), "closed": len(closed), "unjoined": unjoined}

    async def _let_go(self, buckets: CollectionBuckets, found: Sequence[Bucket]) -> list[Bucket]:
        """Remove these buckets from the catalog, wait for their commits, and close what is stored."""
        known = [bucket for bucket in found if bucket.is_known]
        self._catalog.clear(buckets.collection.namespace, [bucket.state.bucket_id for bucket in known])
        self._kick()
        await _until(lambda: all(bucket.is_idle for bucket in known), COMMIT_SECONDS)
        for bucket in known:
            if bucket.parts is not None:
                bucket.parts.full = True
        stored = [bucket for bucket in known if bucket.state.committed_rows]
        await self._set_closed(buckets.collection, stored)
        # Late measurements may have reopened some of them meanwhile.
        self._catalog.clear(buckets.collection.namespace, [bucket.state.bucket_id for bucket in stored])
        self._kick()
        return stored

    async def _close_joined(self, buckets: CollectionBuckets, parted: Sequence[Bucket]) -> int:
        """Close the documents that joins make of parts; returns the number of buckets that are not joined in time."""
        await _until(lambda: not any(self._catalog.growth.holds(each.state.bucket_id) for each in parted), JOIN_SECONDS)
        for start in range(0, len(parted), CLOSED_AT_ONCE):
            await self._set_closed(buckets.collection, parted[start : start + CLOSED_AT_ONCE])
        return sum(self._catalog.growth.holds(each.state.bucket_id) for each in parted)

    async def _set_closed(self, collection: VirtualCollection, buckets: Sequence[Bucket]) -> None:
        if not buckets:
            return
        statements = [
            {
                "q": {"_id": ids, "control.version": 1, "control.closed": {"$ne": True}},
                "u": {"$set": {"control.closed": True}},
                "multi": True,
            }
            for bucket in buckets
            for ids in _ids(bucket)
        ]
        target = collection.buckets
        body = {"update": target.collection, "updates": statements, "ordered": False}
        reply = bson.decode(await self._run(target.database, body))
        errors = reply.get("writeErrors") or ([reply] if reply.get("ok") != 1 else [])
        if errors:
            code = int(errors[0].get("code", 1))
            reason = client_message(code, str(errors[0].get("errmsg", "")), holds_data=True)
            raise CommandError(code, f"cannot close buckets: {reason}")


def _ids(bucket: Bucket) -> list[Any]:
    """The ids of a bucket's stored documents, and of its parts; ids next to those of others are not so reserved."""
    bucket_id = bucket.state.bucket_id
    if not bucket.own:
        return [ObjectId(bucket_id)]
    prefixes = [bucket_id[:PREFIX_BYTES]] if bucket.parts is None else bucket.parts.prefixes
    return [{"$gte": ObjectId(each + b"\0\0\0"), "$lte": ObjectId(each + b"\xff\xff\xff")} for each in prefixes]


async def _until(is_done: Callable[[], bool], seconds: float) -> None:
    loop = asyncio.get_running_loop()
    until_seconds = loop.time() + seconds
    while True:
        if is_done() or loop.time() >= until_seconds:
            return
        await asyncio.sleep(LOOK_SECONDS)
