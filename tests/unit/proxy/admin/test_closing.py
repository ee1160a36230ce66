"""Closing buckets in memory and in the store; tests/clients/test_admin.py looks at stored ones."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import bson
import pytest

from catalog.buckets.write_batch import WriteBatch
from catalog.catalog import BucketCatalog, CatalogOptions
from catalog.errors import CommandError
from catalog.growth.growth import GrowthOptions
from catalog.namespaces import Namespace, VirtualCollection
from catalog.ports import Acknowledgement
from proxy.admin import closing as closing_module
from proxy.admin.catalog_views import Open
from proxy.admin.closing import Closing
from proxy.admin.rights import AdminRights
from proxy.clients.administration import NoAccessControl
from tests.support.admin_calls import Asking
from tests.support.catalog_parts import KEY, CountingIds, ManualClock, RememberingWriter, measurement, virtual


class World:
    def __init__(self, **growth: Any) -> None:
        options = CatalogOptions(reopening=False, growth=GrowthOptions(**growth))
        self.catalog = BucketCatalog(options, ManualClock(), CountingIds())
        self.joins = False
        """Whether parts are joined after each command."""
        self.virtual = virtual()
        self.commands: list[tuple[str, Mapping[str, Any]]] = []
        self.reply: dict[str, Any] = {"ok": 1, "n": 0}
        opened = Open(self.catalog, self, AdminRights(NoAccessControl(), lambda: "anywhere"))
        self.closing = Closing(self.catalog, opened, lambda: None, self.run)

    def known(self) -> list[VirtualCollection]:
        return [self.virtual]

    async def resolve(self, namespace: Namespace) -> VirtualCollection | None:
        return self.virtual if namespace == self.virtual.namespace else None

    async def run(self, database: str, body: Mapping[str, Any]) -> bytes:
        self.commands.append((database, body))
        for bucket in list(self.catalog.growth.parted) if self.joins else ():
            assert bucket.parts is not None
            self.catalog.growth.joined(bucket, bucket.parts, bucket.parts.pending(everything=True))
        return bson.encode(self.reply)

    def place(self, meta: Any) -> WriteBatch:
        batch = self.catalog.place(
            self.catalog.collection(self.virtual), measurement(meta=meta), RememberingWriter(), 0, KEY
        )
        assert batch is not None
        return batch

    def stored(self, *metas: Any) -> list[bytes]:
        """One committed measurement in each of these series; returns the ids of their buckets."""
        ids = []
        for meta in metas:
            batch = self.place(meta)
            batch.claim()
            self.catalog.prepare(batch)
            self.catalog.finish([batch], Acknowledgement())
            ids.append(batch.bucket.state.bucket_id)
        return ids

    async def close(self, **fields: Any) -> Mapping[str, Any]:
        asking = Asking()
        return await self.closing.actions["close"](
            asking.call("close", collection=str(self.virtual.namespace), **fields)
        )


async def test_stored_buckets_are_closed_and_forgotten() -> None:
    world = World()
    first, _ = world.stored("a", "b")
    assert await world.close(meta="a") == {"collection": "db.c", "closed": 1, "unjoined": 0}
    ((database, body),) = world.commands
    assert (database, body["update"]) == ("db", "system.buckets.c")
    (statement,) = body["updates"]
    # Those of its parts, too, which have the same first nine bytes.
    assert statement["q"]["_id"]["$gte"].binary == first
    assert statement["q"]["_id"]["$lte"].binary == first[:9] + b"\xff\xff\xff"
    assert statement["u"] == {"$set": {"control.closed": True}}
    assert world.catalog.gauges()["numBuckets"] == 1
    (again,) = world.stored("a")
    assert again != first


@pytest.mark.parametrize("joins", [True, False])
async def test_parts_are_closed_in_all_segments(monkeypatch: pytest.MonkeyPatch, joins: bool) -> None:
    """Then what a join has made of them."""
    monkeypatch.setattr(closing_module, "JOIN_SECONDS", 0.0)
    world = World(in_parts=True, batches_in_round=1, rows_in_place=1, segment_parts=2)
    world.joins = joins
    for _ in range(4):
        first, _ = world.stored("a", "b")
    prefixes = [first[:4] + segment.to_bytes(2, "big") + first[6:9] for segment in range(3)]
    assert await world.close(meta="a") == {"collection": "db.c", "closed": 1, "unjoined": int(not joins)}
    asked = [[statement["q"]["_id"] for statement in body["updates"]] for _, body in world.commands]
    ranges = [(prefix + bytes(3), prefix + b"\xff\xff\xff") for prefix in prefixes]
    assert [[(each["$gte"].binary, each["$lte"].binary) for each in ids] for ids in asked] == [
        ranges,
        ranges[-1:] if joins else ranges,
    ]


async def test_many_buckets_are_closed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing_module, "CLOSED_AT_ONCE", 3)
    world = World()
    world.stored(*range(7))
    assert (await world.close())["closed"] == 7
    assert [len(body["updates"]) for _, body in world.commands] == [3, 3, 1]
    assert (await world.close())["closed"] == 0


async def test_a_commit_in_progress_is_waited_for() -> None:
    world = World()
    batch = world.place("a")
    batch.claim()
    world.catalog.prepare(batch)
    closing = asyncio.create_task(world.close())
    await asyncio.sleep(0.1)
    assert (closing.done(), world.commands) == (False, [])
    world.catalog.finish([batch], Acknowledgement())
    assert (await closing)["closed"] == 1
    assert len(world.commands) == 1


async def test_what_was_not_sent_goes_to_a_new_bucket() -> None:
    world = World()
    batch = world.place("a")
    assert (await world.close())["closed"] == 0
    assert world.commands == []
    (moved,) = world.catalog.take_unclaimed()
    assert moved.bucket is not batch.bucket


async def test_the_backends_refusal_is_told() -> None:
    world = World()
    world.stored("a")
    world.reply = {"ok": 1, "writeErrors": [{"index": 0, "code": 13, "errmsg": "not authorized"}]}
    with pytest.raises(CommandError, match=r"cannot close buckets: tsproxy's account .* lacks a privilege"):
        await world.close()
    world.stored("a")
    world.reply = {"ok": 0, "code": 91, "errmsg": "shutting down"}
    with pytest.raises(CommandError, match="shutting down"):
        await world.close()


async def test_nothing_was_written_yet() -> None:
    world = World()
    assert await world.close() == {"collection": "db.c", "closed": 0, "unjoined": 0}
