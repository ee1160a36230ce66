"""Rows are found whole and counted, on real servers, now and at earlier times (W102)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from bson import Code, Int64, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

from catalog.bson.codec import encode
from catalog.commit.rows import digest_of
from catalog.errors import BackendUnavailable, CommandError
from catalog.kernel import Measurement, bucket_id, compressed, parse_measurement
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from catalog.parts import bucket_of
from proxy.backend import row_search
from proxy.backend.row_search import RowSearch
from proxy.backend.service import ServicePool
from proxy.request.step_places import StepPlaces
from proxy.upstream.not_primary import NOT_PRIMARY_CODES
from tests.support.mongod import MongodProcess

START_MS = 1_714_521_600_000
OPTIONS = TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60)


def measurement(offset_ms: int = 0, meta: Any = "a", identity: Any = "device", **fields: Any) -> Measurement:
    row = {"t": DatetimeMS(START_MS + offset_ms), "m": meta, "_id": identity, **fields}
    return parse_measurement(encode(row), b"t", b"m")


class Case:
    """A collection of a real server."""

    def __init__(self, server: MongodProcess, database: str, pool: ServicePool) -> None:
        self.client = server.shared_client
        self.database = self.client[database]
        self.database.create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
        self.collection = VirtualCollection(Namespace(database, "c"), OPTIONS)
        self.pool = pool

    def store(self, *measurements: Measurement, packed: bool = False) -> Timestamp:
        """In a bucket of their own; the server's time afterwards."""
        suffix = ObjectId().binary[4:]
        first = measurements[0]
        bucket = bucket_of(bucket_id(START_MS, suffix), b"t", b"m", first.meta, START_MS, measurements)
        stored: bytes | None = compressed(bucket, b"t") if packed else bucket
        assert stored is not None
        self.database["system.buckets.c"].insert_one(RawBSONDocument(stored))
        return self.time()

    def time(self) -> Timestamp:
        reply: dict[str, Any] = self.client.admin.command("ping")
        return reply.get("operationTime", Timestamp(1, 1))

    def later(self) -> Timestamp:
        """The time after a write: an idle set's stands still for ten seconds."""
        time: Timestamp = self.client.admin.command("appendOplogNote", 1, data={"later": 1})["operationTime"]
        return time

    def fail(self, command: str, code: int, times: int = 1) -> None:
        """Let the server fail the next such commands with this error."""
        data = {"failCommands": [command], "errorCode": code, "failInternalCommands": True}
        self.client.admin.command("configureFailPoint", "failCommand", mode={"times": times}, data=data)

    def search(self, started: Timestamp | None = None) -> RowSearch:
        return RowSearch(self.pool, started, StepPlaces(2, 1))

    async def stored(self, *measurements: Measurement, search: RowSearch | None = None) -> Counter[bytes]:
        deadline_seconds = asyncio.get_running_loop().time() + 20
        return await (search or self.search()).stored(self.collection, measurements, deadline_seconds)

    async def earlier(
        self, search: RowSearch, measurement: Measurement, window_seconds: float = 120, *, until_now: bool = False
    ) -> int:
        deadline_seconds = asyncio.get_running_loop().time() + 20
        found = await search.earlier(
            self.collection, [measurement], window_seconds, deadline_seconds, until_now=until_now
        )
        return found[digest_of(measurement)]


def pool_to(server: MongodProcess) -> ServicePool:
    async def primary(timeout_seconds: float) -> tuple[str, int]:
        return "127.0.0.1", server.port

    return ServicePool(primary, None, None, 5.0)


@pytest.fixture
async def case(mongod: MongodProcess, db_name: str) -> AsyncIterator[Case]:
    pool = pool_to(mongod)
    yield Case(mongod, db_name, pool)
    pool.close()


@pytest.fixture
async def set_case(replica_set: MongodProcess, db_name: str) -> AsyncIterator[Case]:
    pool = pool_to(replica_set)
    yield Case(replica_set, db_name, pool)
    pool.close()


async def test_searches_take_turns_by_database() -> None:
    """One that does not get its turn by the deadline fails, and does not keep it from the next one."""

    async def primary(timeout_seconds: float) -> tuple[str, int]:
        raise AssertionError

    search, now = (
        RowSearch(ServicePool(primary, None, None, 5.0), None, StepPlaces(2, 1)),
        asyncio.get_running_loop().time,
    )
    mine, other = (VirtualCollection(Namespace(database, "c"), OPTIONS) for database in ("mine", "other"))
    async with search.turn(mine, now() + 20):
        async with search.turn(other, now() + 20):
            pass
        with pytest.raises(BackendUnavailable):
            async with search.turn(mine, now() + 0.01):
                raise AssertionError
    async with search.turn(mine, now() + 20):
        pass


@pytest.mark.parametrize("packed", [False, True])
async def test_equal_rows_are_counted(case: Case, packed: bool) -> None:
    one, other = measurement(v=1.5), measurement(1, w=[1, {"a": None}])
    # Two buckets of one series, of which one has the same row twice.
    case.store(one, one, other, measurement(2), packed=packed)
    case.store(one, *(measurement(row, v=5) for row in range(3, 9)), packed=packed)
    found = await case.stored(one, other, measurement(4), one)
    assert found == {digest_of(one): 3, digest_of(other): 1}


async def test_rows_that_differ_in_a_field_a_type_or_the_series_are_others(case: Case) -> None:
    stored = measurement(v=1, w="x")
    case.store(stored)
    others = [
        measurement(v=1),
        measurement(v=Int64(1), w="x"),
        measurement(v=1.0, w="x"),
        measurement(v=1, w="x", y=None),
        measurement(1, v=1, w="x"),
        measurement(meta="b", v=1, w="x"),
        measurement(identity="other", v=1, w="x"),
    ]
    assert not await case.stored(*others)
    assert await case.stored(measurement(w="x", v=1)) == {digest_of(stored): 1}


@pytest.mark.parametrize(
    "identity",
    [
        ObjectId("65a000000000000000000001"),
        1,
        1.5,
        "x",
        Int64(1),
        {"a": 1},
        [1, 2],
        None,
        Regex("x"),
        Code("x"),
        b"x",
        DatetimeMS(5),
        True,
    ],
    ids=repr,
)
async def test_ids_of_every_kind(case: Case, identity: Any) -> None:
    rows = [measurement(row, meta, identity) for row, meta in enumerate(["a", {"b": 1, "a": 2}, 5])]
    for row in rows:
        case.store(row)
    assert await case.stored(*rows) == {digest_of(row): 1 for row in rows}


async def test_many_rows_take_many_queries(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_search, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(row_search, "BYTES_AT_ONCE", 100)
    rows = [measurement(row, f"meta {row % 3}", "x" * (row % 50)) for row in range(60)]
    for row in rows:
        case.store(row)
    assert await case.stored(*rows, *rows) == {digest_of(row): 1 for row in rows}


async def test_rows_that_this_process_wrote_are_not_earlier(set_case: Case) -> None:
    row = measurement(v=1)
    set_case.store(row)
    search = set_case.search(set_case.time())
    assert await set_case.earlier(search, row) == 1
    set_case.store(row)
    set_case.store(row)
    assert await set_case.earlier(search, row) == 1


async def test_what_came_between_the_start_and_the_first_write_is_earlier(set_case: Case) -> None:
    """A command of the process before that the backend was still to execute."""
    search = set_case.search(set_case.time())
    row = measurement(v=1)
    set_case.store(row)
    await set_case.stored(row, search=search)
    set_case.store(row)
    search.writes(set_case.collection)
    await set_case.stored(row, search=search)
    assert await set_case.earlier(search, row) == 1


async def test_rows_from_long_before_are_not_of_a_retry(set_case: Case) -> None:
    row = measurement(v=1)
    old = set_case.store(row)
    while set_case.time().time < old.time + 2:
        set_case.client.admin.command("appendOplogNote", 1, data={"a": 1})
        await asyncio.sleep(0.05)
    now = set_case.store(row)
    search = set_case.search(now)
    assert await set_case.earlier(search, row, window_seconds=now.time - old.time - 1) == 1
    assert await set_case.earlier(search, row) == 2


async def test_until_now_all_rows_of_the_window_count(set_case: Case) -> None:
    row = measurement(v=1)
    search = set_case.search(set_case.time())
    search.writes(set_case.collection)
    old = set_case.store(row)
    assert await set_case.earlier(search, row) == 0
    assert await set_case.earlier(search, row, until_now=True) == 1
    while (now := set_case.later()).time < old.time + 3:  # noqa: ASYNC110 - the server's time
        await asyncio.sleep(0.1)
    set_case.store(row)
    assert await set_case.earlier(search, row, window_seconds=now.time - old.time - 1, until_now=True) == 1
    assert await set_case.earlier(search, row, until_now=True) == 2
    assert await set_case.earlier(set_case.search(), row, until_now=True) == 2


async def test_without_history_nothing_is_earlier(replica_set: MongodProcess, db_name: str) -> None:
    """The collection came after that moment."""
    pool = pool_to(replica_set)
    before = replica_set.shared_client.admin.command("appendOplogNote", 1, data={"a": 1})["operationTime"]
    case = Case(replica_set, db_name, pool)
    row = measurement(v=1)
    case.store(row)
    assert await case.earlier(case.search(before), row) == 0
    pool.close()


async def test_a_standalone_has_no_times(case: Case) -> None:
    row = measurement()
    case.store(row)
    assert await case.earlier(case.search(), row) == 1


async def test_errors_tell_nothing_of_what_was_asked(case: Case) -> None:
    case.collection = VirtualCollection(Namespace("", "c"), OPTIONS)
    with pytest.raises(CommandError) as refused:
        await case.stored(measurement(meta="a secret", identity="another"))
    assert "secret" not in refused.value.message
    assert "system.buckets" not in refused.value.message


@pytest.mark.parametrize("code", sorted(NOT_PRIMARY_CODES))
async def test_a_step_down_begins_the_query_again(case: Case, code: int) -> None:
    """The next primary has the row."""
    stored = measurement(v=1)
    case.store(stored)
    case.fail("aggregate", code, times=2)
    assert await case.stored(stored) == {digest_of(stored): 1}


@pytest.mark.parametrize("code", [43, 10107, 11602])
async def test_a_cursor_that_is_lost_begins_the_query_again(case: Case, code: int) -> None:
    """No row counts twice, though some of them came before; the server returns 16 MB at a time."""
    rows = [measurement(number, identity="large", v="x" * 5_000_000) for number in range(5)]
    for each in rows:
        case.store(each)
    case.fail("getMore", code)
    assert await case.stored(*rows) == {digest_of(each): 1 for each in rows}


async def test_another_error_is_raised(case: Case) -> None:
    case.fail("aggregate", 96)
    with pytest.raises(CommandError, match="error 96") as failure:
        await case.stored(measurement())
    assert failure.value.code == 96
