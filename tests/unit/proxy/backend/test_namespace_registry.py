"""Which namespaces are virtual, and how soon changes made elsewhere are noticed (C5, C20)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from bson.binary import Binary

from catalog.errors import BackendUnavailable, CommandError
from catalog.namespaces import LONGEST_FIELD_NAME, Namespace, VirtualCollection
from proxy.backend.namespace_registry import (
    LASTPOINT_INDEXES,
    LISTING_FILTER,
    LISTINGS_BYTES,
    MOST_DOUBTFUL,
    MOST_RENEWED,
    STALE_FACTOR,
    TRUSTED_SECONDS,
    NamespaceRegistry,
    needed_of,
    virtual_collections,
)
from proxy.request.router import UNRESOLVED
from tests.support.mongod import MongodProcess

OPTIONS = {"timeField": "t", "metaField": "m", "granularity": "seconds", "bucketMaxSpanSeconds": 3600}
X = Namespace("db", "x")


def entries(name: str = "x", *, uuid: int = 1, **options: Any) -> list[dict[str, Any]]:
    stored = {"timeseries": OPTIONS, **options}
    info = {"uuid": Binary(uuid.to_bytes(16, "big"), 4)}
    return [
        {"name": name, "type": "timeseries", "options": stored},
        {"name": f"system.buckets.{name}", "type": "collection", "options": stored, "info": info},
    ]


class Backend:
    """A listing that the test changes, a clock that it moves, and how often was asked."""

    def __init__(self, listing: list[dict[str, Any]]) -> None:
        self.listing = listing
        self.error: CommandError | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked = 0
        self.wanted: list[Mapping[str, Any]] = []
        self.now = 0.0
        self.tasks: list[asyncio.Task[None]] = []
        self.registry = NamespaceRegistry(self._list, self._spawn, lambda: self.now, 5.0)

    async def _list(self, database: str, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
        self.asked += 1
        self.wanted.append(wanted)
        await asyncio.sleep(0)
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return self.listing

    def _spawn(self, work: Any) -> None:
        self.tasks.append(asyncio.ensure_future(work))


def test_c5_a_view_with_its_buckets_is_virtual_and_nothing_else() -> None:
    view, buckets = entries()
    assert virtual_collections("db", [view]) == virtual_collections("db", [buckets]) == {}
    found = virtual_collections("db", [view, buckets])["x"]
    assert (found.namespace, found.uuid, found.options.time_field) == (X, bytes(15) + b"\1", "t")
    without_options = {**buckets, "options": {}}
    assert virtual_collections("db", [{**view, "options": {}}, without_options]) == {}


@pytest.mark.parametrize("field", ["timeField", "metaField"])
def test_collections_with_very_long_field_names_are_not_virtual(field: str) -> None:
    """They would be kept as long as their listing is used, and repeated in each bucket and command."""

    def found(length: int) -> bool:
        return bool(virtual_collections("db", entries(timeseries={**OPTIONS, field: "f" * length})))

    assert found(LONGEST_FIELD_NAME)
    assert not found(LONGEST_FIELD_NAME + 1)


def test_a_server_leaves_collections_with_very_long_field_names_out(mongod: MongodProcess, db_name: str) -> None:
    database = mongod.shared_client[db_name]
    for name, field in (("a", "t" * LONGEST_FIELD_NAME), ("b", "t" * (LONGEST_FIELD_NAME + 1))):
        database.create_collection(f"time_{name}", timeseries={"timeField": field})
        database.create_collection(f"meta_{name}", timeseries={"timeField": "t", "metaField": f"m{field[1:]}"})
    listed = [dict(entry) for entry in database.list_collections(filter=LISTING_FILTER)]
    assert virtual_collections(db_name, listed).keys() == {"time_a", "meta_a"}
    assert len(listed) == 4


def test_of_an_entry_only_what_is_used_is_kept() -> None:
    view, buckets = entries(storageEngine={"wiredTiger": {"configString": "x" * 1_000_000}}, collation={"locale": "de"})
    kept = [needed_of(view), needed_of(buckets)]
    assert len(str(kept)) < 1_000
    assert virtual_collections("db", kept)["x"].collation == {"locale": "de"}
    assert virtual_collections("db", kept) == virtual_collections("db", [view, buckets])
    assert needed_of({"name": "v"}) == {"name": "v", "options": {}}


async def test_listings_are_limited_in_bytes_whatever_their_collections_are() -> None:
    """Also when one collection is looked up by itself."""
    series = {**OPTIONS, "metaField": "m" * LONGEST_FIELD_NAME}
    paths = frozenset((f"{number}{'p' * LONGEST_FIELD_NAME}", 1) for number in range(60))
    backend = Backend([])

    def listing(count: int) -> list[dict[str, Any]]:
        each = [
            entries(f"{number}{'n' * 200}", timeseries=series, collation={"locale": "l" * 99})
            for number in range(count)
        ]
        return [{**entry, LASTPOINT_INDEXES: paths} for pair in each for entry in pair]

    backend.listing = listing(100)
    for number in range(LISTINGS_BYTES // (100 * 60 * LONGEST_FIELD_NAME * 4) + 20):
        await backend.registry.resolve(Namespace(f"db_{number}", "x"))
    kept = len(backend.registry.known())
    assert kept * 60 * LONGEST_FIELD_NAME * 4 < LISTINGS_BYTES
    newest = backend.registry.known()[-1].namespace
    backend.registry.forget(newest)
    backend.listing = [{**entry, LASTPOINT_INDEXES: None} for entry in listing(100)]
    await backend.registry.resolve(newest)
    assert len(backend.registry.known()) == kept


async def test_first_lookup_asks_later_ones_do_not() -> None:
    backend = Backend(entries())
    assert backend.registry.lookup(X) is UNRESOLVED
    found = await backend.registry.resolve(X)
    assert isinstance(found, VirtualCollection)
    assert backend.registry.lookup(X) is found
    assert backend.registry.lookup(Namespace("db", "other")) is None
    assert backend.asked == 1


async def test_lookups_at_the_same_moment_share_one_question() -> None:
    backend = Backend(entries())
    found = await asyncio.gather(*(backend.registry.resolve(X) for _ in range(5)))
    assert len(set(map(id, found))) == backend.asked == 1


@pytest.mark.parametrize("name", ["x", "doubtful"])
async def test_one_who_asks_and_leaves_keeps_the_answer_from_nobody(name: str) -> None:
    """Neither that of a whole database nor that of one collection."""
    backend = Backend([*entries(), *entries("doubtful")])
    asked_for = Namespace("db", name)
    if name == "doubtful":
        await backend.registry.resolve(X)
        backend.registry.forget(asked_for)
    backend.may_answer.clear()
    first, second = (asyncio.ensure_future(backend.registry.resolve(asked_for)) for _ in range(2))
    await asyncio.wait([first, second], timeout=0.02)
    first.cancel()
    await asyncio.wait([first])
    backend.may_answer.set()
    assert await second is backend.registry.lookup(asked_for) is not None
    assert backend.asked == (1 if name == "x" else 2)


async def test_an_old_listing_is_used_while_a_new_one_is_fetched() -> None:
    backend = Backend(entries())
    before = await backend.registry.resolve(X)
    backend.listing = entries(uuid=2)
    backend.now = 5.1
    assert backend.registry.lookup(X) is before
    assert backend.registry.lookup(X) is before
    await asyncio.gather(*backend.tasks)
    assert backend.asked == 2
    assert backend.registry.lookup(X) != before


async def test_equal_collections_stay_the_same_object() -> None:
    backend = Backend(entries())
    before = await backend.registry.resolve(X)
    backend.now = 6.0
    backend.registry.lookup(X)
    await asyncio.gather(*backend.tasks)
    assert backend.registry.lookup(X) is before


async def test_a_listing_that_nobody_could_renew_is_not_trusted_for_ever() -> None:
    backend = Backend(entries())
    await backend.registry.resolve(X)
    backend.error = BackendUnavailable("away")
    backend.now = 5.1
    assert isinstance(backend.registry.lookup(X), VirtualCollection)
    await asyncio.gather(*backend.tasks)
    assert isinstance(backend.registry.lookup(X), VirtualCollection)
    backend.now = 5.1 * STALE_FACTOR
    assert backend.registry.lookup(X) is UNRESOLVED
    with pytest.raises(BackendUnavailable):
        await backend.registry.resolve(X)


async def test_what_is_forgotten_is_asked_anew_even_while_it_is_being_asked() -> None:
    backend = Backend(entries())
    asking = asyncio.ensure_future(backend.registry.resolve(X))
    await asyncio.sleep(0)
    backend.registry.forget(X)
    await asking
    assert backend.registry.lookup(X) is UNRESOLVED
    backend.listing = []
    assert await backend.registry.resolve_anew(X) is None
    assert backend.asked == 3


async def test_who_forgets_one_collection_keeps_nobody_from_the_others() -> None:
    """However often it happens, and also while the database is listed for the first time."""
    backend = Backend([*entries("x"), *entries("y")])
    y = Namespace("db", "y")
    asking = asyncio.ensure_future(backend.registry.resolve(X))
    await asyncio.sleep(0)
    for number in range(MOST_DOUBTFUL - 1):
        backend.registry.forget(Namespace("db", f"own_{number}"))
    backend.registry.forget(y)
    found = await asking
    assert backend.registry.lookup(X) is found
    assert backend.registry.lookup(y) is UNRESOLVED
    assert backend.asked == 1


async def test_one_that_was_forgotten_is_asked_for_by_itself() -> None:
    backend = Backend([*entries("x"), *entries("y")])
    before = await backend.registry.resolve(X)
    y = Namespace("db", "y")
    backend.registry.forget(y)
    backend.listing = entries("y", uuid=2)
    found, again = await asyncio.gather(backend.registry.resolve(y), backend.registry.resolve(y))
    assert found is again is backend.registry.lookup(y)
    assert isinstance(found, VirtualCollection)
    assert found.uuid == bytes(15) + b"\2"
    assert backend.wanted[-1] == {"$and": [{"name": {"$in": ["y", "system.buckets.y"]}}, LISTING_FILTER]}
    assert (backend.registry.lookup(X), backend.asked) == (before, 2)
    backend.registry.forget(y)
    backend.listing = []
    assert await backend.registry.resolve(y) is None
    assert backend.registry.lookup(y) is None
    assert backend.asked == 4


async def test_what_was_not_there_is_looked_for_after_any_change() -> None:
    """Others may have been made through another process, by the same client, just before."""
    backend = Backend(entries("x"))
    x = await backend.registry.resolve(X)
    y, z = Namespace("db", "y"), Namespace("db", "z")
    assert backend.registry.lookup(z) is None
    backend.registry.forget(y)
    backend.listing = [*entries("x"), *entries("y"), *entries("z")]
    backend.now += TRUSTED_SECONDS
    assert backend.registry.lookup(z) is UNRESOLVED
    assert await backend.registry.resolve(y) is not None
    assert backend.registry.lookup(z) is UNRESOLVED
    assert backend.registry.lookup(X) is x
    assert await backend.registry.resolve(z) is backend.registry.lookup(z) is not None
    assert backend.registry.lookup(Namespace("db", "other")) is None
    assert backend.asked == 3


async def test_a_database_is_not_listed_at_each_change_for_names_that_are_no_collections() -> None:
    """Somebody may make and drop collections all the time."""
    backend = Backend(entries("x"))
    await backend.registry.resolve(X)
    other = Namespace("db", "other")
    for _ in range(10):
        backend.registry.forget(Namespace("db", "changed"))
        assert backend.registry.lookup(other) is None
    backend.now += TRUSTED_SECONDS
    assert backend.registry.lookup(other) is UNRESOLVED
    assert await backend.registry.resolve(other) is None
    assert backend.registry.lookup(other) is None
    assert backend.asked == 2
    backend.registry.forget(other)
    assert backend.registry.lookup(other) is UNRESOLVED


async def test_a_whole_database_is_forgotten_by_its_name_or_when_much_of_it_is() -> None:
    backend = Backend(entries())
    await backend.registry.resolve(X)
    backend.registry.forget(Namespace("db", ""))
    assert backend.registry.lookup(X) is UNRESOLVED
    await backend.registry.resolve(X)
    for number in range(MOST_DOUBTFUL + 1):
        backend.registry.forget(Namespace("db", f"own_{number}"))
    assert backend.registry.lookup(X) is UNRESOLVED


async def test_known_are_those_in_memory() -> None:
    backend = Backend([*entries("x"), *entries("y", uuid=2)])
    assert backend.registry.known() == []
    await backend.registry.resolve(X)
    assert [str(each.namespace) for each in backend.registry.known()] == ["db.x", "db.y"]
    assert backend.asked == 1


@pytest.mark.parametrize("info", [{"uuid": Binary(bytes(16), 4)}, {"readOnly": False}])
def test_a_server_without_bucket_collections_shows_the_collection_itself(info: dict[str, Any]) -> None:
    """A view whose buckets are not listed is no such collection."""
    options = {"timeseries": {"timeField": "t", "metaField": "m", "granularity": "seconds"}}
    found = virtual_collections("d", [{"name": "x", "type": "timeseries", "options": options, "info": info}])
    assert [each.uuid for each in found.values()] == ([bytes(16)] if "uuid" in info else [])


async def test_distant_times_that_others_store_are_known_before_the_backend_tells() -> None:
    """Q12: another process tells before it stores the first one."""
    backend = Backend([*entries("x"), *entries("y")])
    y = Namespace("db", "y")
    backend.registry.note_extended_range(y)
    first = await backend.registry.resolve(X)
    assert first is not None
    assert not first.extended_range
    backend.registry.note_extended_range(X)
    for each in (X, y):
        known = backend.registry.lookup(each)
        assert isinstance(known, VirtualCollection)
        assert known.extended_range, each
    again = await backend.registry.resolve_anew(X)
    assert again is not None
    assert again.extended_range
    backend.registry.note_extended_range(Namespace("db", "none"))
    assert backend.registry.lookup(Namespace("db", "none")) in (None, UNRESOLVED)


async def test_everything_is_listed_again_and_used_until_then() -> None:
    backend = Backend(entries())
    first = await backend.registry.resolve(X)
    backend.listing = entries(uuid=2)
    backend.registry.renew_all()
    backend.registry.renew_all()
    assert backend.registry.lookup(X) is first
    await asyncio.gather(*backend.tasks)
    now = backend.registry.lookup(X)
    assert isinstance(now, VirtualCollection)
    assert now.uuid == bytes(15) + b"\2"
    assert backend.asked == 2


async def test_of_many_databases_those_that_were_used_last_are_listed_again() -> None:
    backend = Backend(entries())
    for number in range(MOST_RENEWED + 1):
        await backend.registry.resolve(Namespace(f"db{number}", "x"))
    backend.registry.renew_all()
    assert backend.registry.lookup(Namespace("db0", "x")) is UNRESOLVED
    assert isinstance(backend.registry.lookup(Namespace("db1", "x")), VirtualCollection)
    await asyncio.gather(*backend.tasks)
    assert backend.asked == 2 * MOST_RENEWED + 1
