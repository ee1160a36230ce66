"""Joins on real servers while others write to the parts, between the moment they are read and the step that joins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId, Regex, Timestamp, encode
from pymongo.collection import Collection

from catalog.errors import CommandError
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from catalog.parts import join
from catalog.ports import Span
from catalog.replacing import Differs
from proxy.backend.parts.part_store import LARGEST_JOIN_BYTES, PartStore
from proxy.backend.service import ServicePool
from tests.support.mongod import MongodProcess

START = datetime(2024, 1, 1, tzinfo=UTC)
IDS = [ObjectId(int(START.timestamp()).to_bytes(4, "big") + b"parts" + each.to_bytes(3, "big")) for each in range(3)]
OPTIONS = TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60)

NINE = [ObjectId(IDS[0].binary[:8] + bytes([each // 3, 0, 0, each % 3])) for each in range(9)]
"""Parts of three buckets."""

Others = Callable[[Collection[Any]], object]


def part(number: int, rows: int = 1, meta: object = "a", **more: object) -> dict[str, Any]:
    times = [START + timedelta(seconds=10 * number + row) for row in range(rows)]
    least = {"t": START, "v": number, **more}
    return {
        "_id": IDS[number],
        "control": {"version": 1, "min": least, "max": {**least, "t": times[-1]}, "closed": True},
        "meta": meta,
        "data": {
            "t": {str(row): time for row, time in enumerate(times)},
            **{name: {str(row): value for row in range(rows)} for name, value in {"v": number, **more}.items()},
        },
    }


class Case:
    """A collection in parts, and the store that joins them."""

    def __init__(self, server: MongodProcess, database: str, pool: ServicePool, *, sealed: bool, alone: bool) -> None:
        client = server.shared_client
        client[database].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
        (entry,) = client[database].list_collections(filter={"name": "system.buckets.c"})
        uuid = entry["info"]["uuid"]
        self.collection = VirtualCollection(Namespace(database, "c"), OPTIONS, bytes(uuid))
        self.buckets = client[database]["system.buckets.c"]
        self._store = PartStore(pool, transactions=not sealed, alone=lambda: alone)

    async def joined_while(self, others: Others, parts: Sequence[dict[str, Any]]) -> int | None:
        """Join while ``others`` write: after the parts were read, before they are replaced."""
        if parts:
            self.buckets.insert_many(parts, bypass_document_validation=True)

        def merge(documents: Sequence[bytes]) -> bytes:
            others(self.buckets)
            return join(documents, IDS[-1].binary, b"t", b"m")

        (joined,) = await self._store.join(
            self.collection, [Span(IDS[0].binary, IDS[-1].binary, 3, merge, [IDS[0].binary])], 1e9
        )
        return joined

    async def joined_side_by_side(
        self, spans: Sequence[tuple[int, int]], *, whole: bool = True
    ) -> Sequence[int | None]:
        """The parts with these numbers, first and last, in one step."""

        def merge_into(last: ObjectId) -> Callable[[Sequence[bytes]], bytes]:
            return lambda documents: join(documents, last.binary, b"t", b"m")

        return await self._store.join(
            self.collection,
            [
                Span(
                    NINE[first].binary,
                    NINE[last].binary,
                    last - first + 1,
                    merge_into(NINE[last]),
                    [NINE[first].binary],
                    is_whole=whole,
                )
                for first, last in spans
            ],
            1e9,
        )

    def rows(self) -> list[Any]:
        """What every reader sees."""
        view = self.buckets.database["c"]
        return [(each["m"], each["v"]) for each in view.find({}, sort=[("v", 1)])]


@pytest.fixture(params=["mongod", "mongod, alone", "replica_set"])
async def case(request: pytest.FixtureRequest, db_name: str) -> AsyncIterator[Case]:
    name, _, alone = request.param.partition(", ")
    server: MongodProcess = request.getfixturevalue(name)

    async def primary(_: float) -> tuple[str, int]:
        return "127.0.0.1", server.port

    pool = ServicePool(primary, None, None, 5.0)
    yield Case(server, db_name, pool, sealed=name == "mongod", alone=bool(alone))
    pool.close()


async def test_parts_become_one_document(case: Case) -> None:
    assert await case.joined_while(lambda _: None, [part(0, rows=4), part(1), part(2, rows=2)]) == 3
    assert [each["_id"] for each in case.buckets.find({})] == [IDS[-1]]
    assert case.rows() == [("a", 0)] * 4 + [("a", 1)] + [("a", 2)] * 2


@pytest.mark.parametrize("meta", [Regex("a", "i"), [1, 2], {"$gt": 1}, {"b": {"$exists": 0}}, None, 1.5], ids=str)
async def test_values_that_look_like_conditions_are_values(case: Case, meta: object) -> None:
    parts = [part(number, meta=meta, w={"$in": number}) for number in range(3)]
    assert await case.joined_while(lambda _: None, parts) == 3


def rewritten(buckets: Collection[Any]) -> None:
    """As a removal of some of the rows does."""
    buckets.replace_one({"_id": IDS[0]}, part(0, rows=2))


OTHERS: dict[str, tuple[Others, list[Any]]] = {
    "a part in the middle is deleted": (lambda buckets: buckets.delete_one({"_id": IDS[1]}), [0, 0, 0, 2]),
    "the first part is deleted": (lambda buckets: buckets.delete_one({"_id": IDS[0]}), [1, 2]),
    "the last part is deleted": (lambda buckets: buckets.delete_one({"_id": IDS[2]}), [0, 0, 0, 1]),
    "rows are taken away": (rewritten, [0, 0, 1, 2]),
    "the meta value is changed": (
        lambda buckets: buckets.update_one({"_id": IDS[1]}, {"$set": {"meta": "b"}}),
        [0, 0, 0, 1, 2],
    ),
}


@pytest.mark.parametrize("case", ["mongod", "replica_set"], indirect=True)
@pytest.mark.parametrize("name", OTHERS)
async def test_a_join_undoes_nobody_elses_write(case: Case, name: str) -> None:
    others, left = OTHERS[name]
    with pytest.raises(CommandError):
        await case.joined_while(others, [part(0, rows=3), part(1), part(2)])
    assert [value for _, value in case.rows()] == left


NATIVELY: dict[str, tuple[Others, list[Any]]] = {
    "all are deleted": (lambda buckets: buckets.database["c"].delete_many({"m": "a"}), []),
    "the meta value is changed": (
        lambda buckets: buckets.database["c"].update_many({"m": "a"}, {"$set": {"m": "b"}}),
        [("b", 0), ("b", 1), ("b", 2)],
    ),
    "a delete has only begun": (lambda buckets: buckets.delete_one({"_id": IDS[0]}), [("a", 1), ("a", 2)]),
    "a delete in another order has only begun": (
        lambda buckets: buckets.delete_one({"_id": IDS[2]}),
        [("a", 0), ("a", 1)],
    ),
    "a delete in any order has only begun": (lambda buckets: buckets.delete_one({"_id": IDS[1]}), [("a", 0), ("a", 2)]),
    "a change of meta in another order has only begun": (
        lambda buckets: buckets.update_one({"_id": IDS[2]}, {"$set": {"meta": "b"}}),
        [("a", 0), ("a", 1), ("b", 2)],
    ),
    "a change of meta has only begun": (
        lambda buckets: buckets.update_one({"_id": IDS[0]}, {"$set": {"meta": "b"}}),
        [("b", 0), ("a", 1), ("a", 2)],
    ),
}


@pytest.mark.parametrize("name", NATIVELY)
async def test_a_join_undoes_no_native_write(case: Case, name: str) -> None:
    """What parts have in common is all that a native write chooses by; in which order it takes them an index says."""
    others, left = NATIVELY[name]
    with pytest.raises(CommandError):
        await case.joined_while(others, [part(0), part(1), part(2)])
    assert case.rows() == left


EQUAL: dict[str, tuple[object, object]] = {
    "of another type": (1, 1.0),
    "of the same size": (Int64(1), 1.0),
    "in an object": ({"a": 1}, {"a": 1.0}),
    "in an object, of the same size": ({"a": {"b": Int64(1)}}, {"a": {"b": 1.0}}),
    "in an array": ([Int64(1)], [1.0]),
    "with another sign": ({"a": 0.0}, {"a": -0.0}),
    "with more digits": ({"a": Decimal128("1.0")}, {"a": Decimal128("1.00")}),
}


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("done", ["wholly", "from the first on", "from the last on"])
async def test_a_join_undoes_no_change_of_meta_to_an_equal_value(case: Case, name: str, done: str) -> None:
    """No condition of a server tells such values apart, so a join writes no meta.

    An update that has begun goes on to those parts that are there still.
    """
    before, after = EQUAL[name]
    reached: dict[str, dict[str, Any]] = {
        "wholly": {},
        "from the first on": {"_id": {"$lt": IDS[2]}},
        "from the last on": {"_id": {"$gt": IDS[0]}},
    }

    def change(buckets: Collection[Any]) -> None:
        buckets.update_many(reached[done], [{"$set": {"meta": {"$literal": after}}}])

    try:
        assert await case.joined_while(change, [part(number, meta=before) for number in range(3)]) == 3
    except CommandError:
        assert len(list(case.buckets.find({}))) == 3
    # The rest of the update.
    left = {"from the first on": IDS[2], "from the last on": IDS[0]}.get(done)
    case.buckets.update_many({"_id": left}, [{"$set": {"meta": {"$literal": after}}}])
    assert {encode({"m": meta}) for meta, _ in case.rows()} == {encode({"m": after})}
    assert [value for _, value in case.rows()] == [0, 1, 2]


async def test_an_empty_timestamp_stays_what_it_is(case: Case) -> None:
    """A server would put the current time in its place (W37)."""
    case.buckets.insert_many([part(number) for number in range(3)], bypass_document_validation=True)
    case.buckets.update_many({}, {"$set": {"meta": Timestamp(0, 0)}})
    assert await case.joined_while(lambda _: None, []) == 3
    assert case.rows() == [(Timestamp(0, 0), number) for number in range(3)]


def test_a_native_delete_takes_parts_in_the_order_of_an_index(mongod: MongodProcess, db_name: str) -> None:
    """A descending index takes the last part first."""
    database = mongod.shared_client[db_name]
    database.create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
    database["c"].create_index([("m", 1), ("t", -1)], name="descending")
    buckets = database["system.buckets.c"]
    buckets.insert_many([part(number) for number in range(3)], bypass_document_validation=True)
    delete = {"delete": "system.buckets.c", "deletes": [{"q": {"meta": "a"}, "limit": 0}]}
    plan = database.command({"explain": delete, "verbosity": "queryPlanner"})["queryPlanner"]["winningPlan"]
    assert "'indexName': 'descending'" in str(plan)
    assert [each["_id"] for each in buckets.find({"meta": "a"}, hint="descending")] == IDS[::-1]


async def test_an_append_while_parts_are_joined_is_refused_or_kept(case: Case) -> None:
    """The first document was open until now; another process goes on with it under its guard."""
    appended: list[int] = []

    def append(buckets: Collection[Any]) -> None:
        guard = {"_id": IDS[0], "control.closed": {"$ne": True}, "data.t.1": {"$exists": False}}
        time = START + timedelta(seconds=5)
        change = {"data.t.1": time, "data.v.1": 0, "control.max.t": time}
        appended.append(buckets.update_one(guard, {"$set": change}).matched_count)

    open_one = part(0)
    del open_one["control"]["closed"]
    try:
        await case.joined_while(append, [open_one, part(1), part(2)])
    except CommandError:
        assert appended == [1]
    assert len(case.rows()) == 3 + sum(appended)


async def test_parts_too_large_for_one_operation_stay(case: Case) -> None:
    parts = [part(number, payload="x" * (LARGEST_JOIN_BYTES // 9)) for number in range(3)]
    if case.buckets.database.client.admin.command("hello").get("setName"):
        assert await case.joined_while(lambda _: None, parts) == 3
    else:
        with pytest.raises(ValueError, match="too large"):
            await case.joined_while(lambda _: None, parts)
    assert len(case.rows()) == 3


@pytest.mark.parametrize(("direction", "seen"), [(1, [0, 0, 1, 2]), (-1, [2])])
async def test_what_a_reader_past_the_proxy_may_meet(case: Case, direction: int, seen: list[int]) -> None:
    """A cursor that stands between two parts: forwards rows come twice, backwards they are missed."""
    met: list[dict[str, Any]] = []
    cursor = case.buckets.find({}, sort=[("$natural", direction)], batch_size=1)

    def read_one(_: Collection[Any]) -> None:
        met.append(next(cursor))

    assert await case.joined_while(read_one, [part(0), part(1), part(2)]) == 3
    met += list(cursor)
    assert [value for each in met for value in each["data"]["v"].values()] == seen


async def test_a_snapshot_sees_one_state(case: Case) -> None:
    if not case.buckets.database.client.admin.command("hello").get("setName"):
        return
    met: list[dict[str, Any]] = []
    with case.buckets.database.client.start_session(snapshot=True) as session:
        case.buckets.insert_many([part(number) for number in range(3)], bypass_document_validation=True)
        cursor = case.buckets.find({}, sort=[("$natural", -1)], batch_size=1, session=session)
        assert await case.joined_while(lambda _: met.append(next(cursor)), []) == 3
        met += list(cursor)
    assert [value for each in met for value in each["data"]["v"].values()] == [2, 1, 0]


def nine_parts() -> list[dict[str, Any]]:
    return [{**part(number % 3, meta=number // 3), "_id": NINE[number]} for number in range(9)]


async def test_several_buckets_are_joined_in_one_step(case: Case) -> None:
    """What lies between them stays, and one that was joined before is told by its count."""
    parts = nine_parts()
    case.buckets.insert_many(parts[:6] + parts[8:], bypass_document_validation=True)
    assert await case.joined_side_by_side([(0, 2), (3, 4), (6, 8)]) == [3, 2, 1]
    assert [each["_id"] for each in case.buckets.find({}, sort=[("_id", 1)])] == [NINE[2], NINE[4], NINE[5], NINE[8]]
    assert case.rows() == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]


async def test_one_that_is_gone_is_told_and_the_others_are_joined(case: Case) -> None:
    case.buckets.insert_many(nine_parts()[:5], bypass_document_validation=True)
    assert await case.joined_side_by_side([(0, 2), (3, 5), (6, 8)]) == [3, None, None]
    assert [each["_id"] for each in case.buckets.find({}, sort=[("_id", 1)])] == [NINE[2], NINE[3], NINE[4]]


async def test_spans_with_much_between_them_are_joined_all_the_same(case: Case) -> None:
    """They are read one by one, so that little of what lies between is read along."""
    between = [{**part(0), "_id": ObjectId(NINE[2].binary[:9] + (each + 3).to_bytes(3, "big"))} for each in range(20)]
    case.buckets.insert_many(nine_parts() + between, bypass_document_validation=True)
    assert await case.joined_side_by_side([(0, 2), (3, 5)]) == [3, 3]
    assert case.buckets.count_documents({}) == 29 - 4
    assert len(case.rows()) == 29


async def test_the_latest_parts_are_joined_behind_a_run_that_stays(case: Case) -> None:
    """Of several buckets in one step."""
    case.buckets.insert_many(nine_parts(), bypass_document_validation=True)
    rows = case.rows()
    assert await case.joined_side_by_side([(1, 2), (4, 5), (7, 8)], whole=False) == [2, 2, 2]
    left = [each["_id"] for each in case.buckets.find({}, sort=[("_id", 1)])]
    assert left == [NINE[number] for number in (0, 2, 3, 5, 6, 8)]
    assert case.rows() == rows


async def test_what_is_merged_wrongly_is_not_written(case: Case) -> None:
    """The parts stay as they are, and nothing holds them: the next join is let in at once."""

    def wrong(_: Collection[Any]) -> None:
        raise Differs("a bucket that does not hold its parts")

    with pytest.raises(Differs):
        await case.joined_while(wrong, [part(0, rows=4), part(1), part(2, rows=2)])
    assert case.rows() == [("a", 0)] * 4 + [("a", 1)] + [("a", 2)] * 2
    status = case.buckets.database.client.admin.command("serverStatus")
    assert status.get("transactions", {}).get("currentOpen", 0) == 0
    assert await case.joined_while(lambda _: None, []) == 3
    assert [each["_id"] for each in case.buckets.find({})] == [IDS[-1]]
