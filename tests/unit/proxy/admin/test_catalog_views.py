"""Collections and buckets as admin commands see them; tests/clients/test_admin.py has stored ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from catalog.catalog import BucketCatalog, CatalogOptions
from catalog.errors import CommandError
from catalog.identity import identity_of
from catalog.namespaces import Namespace, VirtualCollection
from proxy.admin.catalog_views import LOOKED_AT_ONCE, MOST_META_BYTES, CatalogViews, Open, meta_key
from proxy.admin.rights import AdminRights
from proxy.request.authorisation import Rights
from proxy.request.session import Session
from tests.support.admin_calls import Asking
from tests.support.catalog_parts import KEY, START_MS, CountingIds, ManualClock, RememberingWriter, measurement, virtual
from tests.support.sessions import session


class World:
    """A catalog without a backend; ``finds``: whether the client may read the collection."""

    def __init__(self, *, finds: bool = True) -> None:
        self.catalog = BucketCatalog(CatalogOptions(reopening=False), ManualClock(), CountingIds())
        self.virtual = virtual()
        self.listed: list[VirtualCollection] = []
        self.is_enforced = True
        self.given = Rights([{"resource": {"db": "", "collection": ""}, "actions": ["find"]}] if finds else ())
        opened = Open(self.catalog, self, AdminRights(self, lambda: "loopback"))
        self.views = CatalogViews(self.catalog, self, opened)

    async def rights(self, session: Session) -> Rights:
        return self.given

    def known(self) -> list[VirtualCollection]:
        return self.listed

    async def resolve(self, namespace: Namespace) -> VirtualCollection | None:
        return next((each for each in self.listed if each.namespace == namespace), None)

    def write(self, *metas: Any) -> None:
        buckets = self.catalog.collection(self.virtual)
        for meta in metas:
            self.catalog.place(buckets, measurement(meta=meta), RememberingWriter(), 0, KEY)

    async def ask(self, name: str, **fields: Any) -> Mapping[str, Any]:
        asking = Asking(session(identity_of([("u", "admin")])))
        return await self.views.actions[name](asking.call(name, **fields))

    @property
    def name(self) -> str:
        return str(self.virtual.namespace)


async def test_open_buckets_are_counted_with_their_rows() -> None:
    world = World()
    world.write("a", "a", "b")
    (shown,) = (await world.ask("collections"))["collections"]
    assert {name: shown[name] for name in ("collection", "series", "openBuckets", "rows", "uncommittedRows")} == {
        "collection": world.name,
        "series": 2,
        "openBuckets": 2,
        "rows": 3,
        "uncommittedRows": 3,
    }


async def test_collections_that_nobody_wrote_to_are_known_too() -> None:
    world = World()
    world.write("a")
    other = VirtualCollection(Namespace("zz", "c"), world.virtual.options)
    world.listed = [world.virtual, other]
    shown = await world.ask("collections")
    assert [each["collection"] for each in shown["collections"]] == [world.name, "zz.c"]
    assert shown["collections"][1] == {"collection": "zz.c", "parts": 0}
    assert (await world.ask("collections", database="zz"))["total"] == 1
    assert len((await world.ask("collections", limit=1))["collections"]) == 1


async def test_buckets_of_many_series_are_listed_in_pieces() -> None:
    world = World()
    world.write(*range(LOOKED_AT_ONCE + 5))
    shown = await world.ask("buckets", collection=world.name)
    assert (shown["total"], len(shown["buckets"])) == (LOOKED_AT_ONCE + 5, 100)
    first = shown["buckets"][0]
    assert (first["meta"], first["rows"], first["committedRows"], first["isCurrent"]) == (0, 1, 0, True)
    assert first["_id"].generation_time.timestamp() * 1000 <= START_MS
    (one,) = (await world.ask("buckets", collection=world.name, meta=2_003))["buckets"]
    assert one["meta"] == 2_003
    assert (await world.ask("buckets", collection=world.name, meta="none"))["total"] == 0


async def test_meta_values_are_normalised_as_those_of_measurements() -> None:
    world = World()
    world.write({"b": 1, "a": 2})
    assert (await world.ask("buckets", collection=world.name, meta={"a": 2, "b": 1}))["total"] == 1


async def test_long_meta_values_are_only_measured() -> None:
    world = World()
    world.write("x" * MOST_META_BYTES)
    (shown,) = (await world.ask("buckets", collection=world.name))["buckets"]
    assert ("meta" in shown, shown["metaBytes"]) == (False, MOST_META_BYTES + 5)


async def test_meta_values_are_not_shown_to_everybody() -> None:
    world = World(finds=False)
    world.write("a")
    (shown,) = (await world.ask("buckets", collection=world.name))["buckets"]
    assert (shown["rows"], "meta" in shown) == (1, False)
    with pytest.raises(CommandError) as raised:
        await world.ask("buckets", collection=world.name, meta="a")
    assert raised.value.code == 13


async def test_collections_without_buckets() -> None:
    world = World()
    world.listed = [world.virtual]
    assert (await world.ask("buckets", collection=world.name))["buckets"] == []
    with pytest.raises(CommandError) as raised:
        await world.ask("buckets", collection="zz.c")
    assert raised.value.code == 26


def test_a_collection_without_meta_has_no_meta_values() -> None:
    world = World()
    buckets = world.catalog.collection(world.virtual)
    buckets.meta_field = None
    with pytest.raises(CommandError, match="no meta field"):
        meta_key(buckets, b"\x10\1\0\0\0")
