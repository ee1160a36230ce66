"""Joins on real servers while others write to the parts, between the moment they are read and the step that joins."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId, Regex, Timestamp, decode, encode
from pymongo.collection import Collection

from catalog.background.replacing import Differs
from catalog.errors import CommandError
from catalog.ports import Found
from proxy.backend.parts.part_store import LARGEST_JOIN_BYTES
from tests.support.eventually import eventually
from tests.support.mongod import MongodProcess
from tests.support.other_writers import EQUAL, NATIVELY, OTHERS, WAITING, rewritten
from tests.support.part_store_case import (
    APART,
    NINE,
    START,
    TOGETHER,
    Case,
    Ids,
    counts_of,
    differing,
    nine_parts,
    packed,
    part,
    part_id,
    three_parts,
)

DEEPEST_META = 179
"""A server inserts buckets with 180 levels at most."""

BOTH = pytest.mark.parametrize("ids", [TOGETHER, APART], ids=["in one segment", "in two segments"])


@pytest.fixture
def ids() -> Ids:
    """Those of the parts that are joined while others write."""
    return TOGETHER


@pytest.fixture(params=["mongod", "mongod, alone", "replica_set"])
async def case(request: pytest.FixtureRequest, db_name: str, ids: Ids) -> AsyncIterator[Case]:
    name, _, alone = request.param.partition(", ")
    server: MongodProcess = request.getfixturevalue(name)
    made = Case(server, db_name, sealed=name == "mongod", alone=bool(alone), ids=ids)
    yield made
    made.pool.close()


def nothing(buckets: Collection[Any], ids: Ids) -> None:
    """Nobody else writes."""


@BOTH
async def test_parts_become_one_document(case: Case) -> None:
    assert await case.joined_while(nothing, [part(0, rows=4), part(1), part(2, rows=2)]) == 3
    assert case.left() == [case.ids[-1]]
    assert case.rows() == [("a", 0)] * 4 + [("a", 1)] + [("a", 2)] * 2


@pytest.mark.parametrize("meta", [Regex("a", "i"), [1, 2], {"$gt": 1}, {"b": {"$exists": 0}}, None, 1.5], ids=str)
async def test_values_that_look_like_conditions_are_values(case: Case, meta: object) -> None:
    parts = [part(number, meta=meta, w={"$in": number}) for number in range(3)]
    assert await case.joined_while(nothing, parts) == 3


async def test_values_that_are_nested_as_deeply_as_a_server_allows_are_compared(case: Case) -> None:
    """A condition nests them further."""
    meta: dict[str, Any] = {}
    for _ in range(DEEPEST_META):
        meta = {"a": meta}
    assert await case.joined_while(nothing, [part(number, meta=meta) for number in range(3)]) == 3


@BOTH
@pytest.mark.parametrize("case", ["mongod", "replica_set"], indirect=True)
@pytest.mark.parametrize("name", OTHERS)
async def test_a_join_undoes_nobody_elses_write(case: Case, name: str) -> None:
    others, left = OTHERS[name]
    with pytest.raises(CommandError):
        await case.joined_while(others, [part(0, rows=3), part(1), part(2)])
    assert [value for _, value in case.rows()] == left


@BOTH
@pytest.mark.parametrize("name", NATIVELY)
async def test_a_join_undoes_no_native_write(case: Case, name: str) -> None:
    """What parts have in common is all that a native write chooses by; in which order it takes them an index says."""
    others, left = NATIVELY[name]
    with pytest.raises(CommandError):
        await case.joined_while(others, [part(0), part(1), part(2)])
    assert case.rows() == left


@BOTH
@pytest.mark.parametrize("case", ["mongod"], indirect=True)
@pytest.mark.parametrize("name", OTHERS)
async def test_a_prepared_join_undoes_nobody_elses_write(case: Case, name: str) -> None:
    """Some time may pass before it is committed."""
    others, left = OTHERS[name]
    with pytest.raises(CommandError):
        await case.joined_while(others, [part(0, rows=3), part(1), part(2)], late=True)
    assert [value for _, value in case.rows()] == left


@BOTH
@pytest.mark.parametrize("case", ["mongod, alone"], indirect=True)
@pytest.mark.parametrize("late", [False, True], ids=["after the parts were read", "after it was prepared"])
@pytest.mark.parametrize("name", OTHERS)
async def test_a_join_undoes_no_delete_or_update_of_its_own_process(case: Case, name: str, *, late: bool) -> None:
    """A process that knows of no others does not compare the parts, unless it has changed measurements itself."""
    write, left = OTHERS[name]

    def noted(buckets: Collection[Any], ids: Ids) -> None:
        write(buckets, ids)
        case.direct_writes.note(case.collection.namespace)

    with pytest.raises(CommandError):
        await case.joined_while(noted, [part(0, rows=3), part(1), part(2)], late=late)
    assert [value for _, value in case.rows()] == left


@pytest.mark.parametrize("case", ["mongod, alone"], indirect=True)
async def test_a_join_that_begins_during_a_delete_compares_the_parts(case: Case) -> None:
    """The delete says so before it changes the first part, and may fail before it says so again."""
    case.direct_writes.note(case.collection.namespace)
    with pytest.raises(CommandError):
        await case.joined_while(rewritten, [part(0, rows=3), part(1), part(2)], late=True)
    assert [value for _, value in case.rows()] == [0, 0, 1, 2]


@pytest.mark.parametrize("case", ["mongod, alone"], indirect=True)
async def test_a_join_undoes_no_delete_of_a_process_that_has_just_appeared(case: Case) -> None:
    def appears(buckets: Collection[Any], ids: Ids) -> None:
        case.is_alone = False
        rewritten(buckets, ids)

    with pytest.raises(CommandError):
        await case.joined_while(appears, [part(0, rows=3), part(1), part(2)], late=True)
    assert [value for _, value in case.rows()] == [0, 0, 1, 2]


@pytest.mark.parametrize("case", ["mongod, alone"], indirect=True)
async def test_a_delete_elsewhere_prevents_no_join(case: Case) -> None:
    def deletes(buckets: Collection[Any], ids: Ids) -> None:
        case.direct_writes.note(case.collection.namespace)

    assert await case.joined_while(deletes, [part(0, rows=3), part(1), part(2)], late=True) == 3
    assert [value for _, value in case.rows()] == [0, 0, 0, 1, 2]


@BOTH
@pytest.mark.parametrize("case", ["mongod", "mongod, alone"], indirect=True)
@pytest.mark.parametrize("name", NATIVELY)
async def test_a_prepared_join_undoes_no_native_write(case: Case, name: str) -> None:
    others, left = NATIVELY[name]
    with pytest.raises(CommandError):
        await case.joined_while(others, [part(0), part(1), part(2)], late=True)
    assert case.rows() == left


@BOTH
@pytest.mark.parametrize("case", ["replica_set"], indirect=True)
@pytest.mark.parametrize("name", WAITING)
async def test_who_meets_a_prepared_join_waits_and_finds_all_rows_in_one_document(case: Case, name: str) -> None:
    """Nobody writes to what a transaction has changed before it ends."""
    case.buckets.database["c"].create_index([("m", 1), ("t", -1)], name="descending")
    case.store(*three_parts(case.ids))
    prepared = await case.prepared([case.ids])
    others, left = WAITING[name]
    writing = asyncio.get_running_loop().run_in_executor(None, others, case.buckets, case.ids)
    writes = {"ns": {"$regex": case.buckets.database.name}, "op": {"$in": ["remove", "update", "command"]}}
    admin = case.buckets.database.client.admin
    await eventually(lambda: writing.done() or list(admin.aggregate([{"$currentOp": {}}, {"$match": writes}])))
    assert not writing.done()
    await prepared.commit()
    await writing
    assert case.rows() == left
    assert len(case.left()) == bool(left)


@BOTH
async def test_nobody_sees_a_prepared_join_and_an_abandoned_one_leaves_everything(case: Case) -> None:
    case.store(*three_parts(case.ids))
    before, rows = case.raw(case.ids), case.rows()
    for _ in range(2):
        prepared = await case.prepared([case.ids])
        assert (case.raw(case.ids), case.rows(), counts_of(prepared)) == (before, rows, [3])
        await prepared.abandon()
        assert (case.raw(case.ids), case.left()) == (before, list(case.ids))
    assert await case.joined_while(nothing, []) == 3
    assert (case.left(), case.rows()) == ([case.ids[-1]], rows)


@pytest.mark.parametrize("case", ["replica_set"], indirect=True)
async def test_sessions_are_used_again(case: Case) -> None:
    """Servers limit their number. Joins that are prepared at the same time need one each."""
    case.store(*nine_parts())
    for _ in range(3):
        both = [await case.prepared([NINE[:3]]), await case.prepared([NINE[3:6]])]
        await both[0].abandon()
        await both[1].abandon()
    with pytest.raises(Differs):
        await case.prepared([NINE[:3]], differing)
    assert await case.joined_side_by_side([NINE[:3]]) == [3]
    assert await case.joined_side_by_side([NINE[:3]]) == [1]
    assert len({each["lsid"]["id"] for each in case.pool.sent}) == 2


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("done", ["wholly", "from the first on", "from the last on"])
async def test_a_join_undoes_no_change_of_meta_to_an_equal_value(case: Case, name: str, done: str) -> None:
    """No condition of a server tells such values apart, so a join without a transaction writes no meta.

    An update that has begun goes on to those parts that are there still.
    """
    before, after = EQUAL[name]
    reached: dict[str, dict[str, Any]] = {
        "wholly": {},
        "from the first on": {"_id": {"$lt": case.ids[2]}},
        "from the last on": {"_id": {"$gt": case.ids[0]}},
    }

    def change(buckets: Collection[Any], ids: Ids) -> None:
        buckets.update_many(reached[done], [{"$set": {"meta": {"$literal": after}}}])

    try:
        assert await case.joined_while(change, [part(number, meta=before) for number in range(3)]) == 3
    except CommandError:
        assert len(list(case.buckets.find({}))) == 3
    # The rest of the update.
    left = {"from the first on": case.ids[2], "from the last on": case.ids[0]}.get(done)
    case.buckets.update_many({"_id": left}, [{"$set": {"meta": {"$literal": after}}}])
    assert {encode({"m": meta}) for meta, _ in case.rows()} == {encode({"m": after})}
    assert [value for _, value in case.rows()] == [0, 1, 2]


@BOTH
async def test_an_empty_timestamp_stays_what_it_is(case: Case) -> None:
    """A server would put the current time in its place (W37)."""
    case.store(*three_parts(case.ids))
    case.buckets.update_many({}, {"$set": {"meta": Timestamp(0, 0)}})
    assert await case.joined_while(nothing, []) == 3
    assert case.rows() == [(Timestamp(0, 0), number) for number in range(3)]


@pytest.mark.parametrize("made", [lambda joined: joined, packed], ids=["plain", "compressed"])
async def test_what_a_join_makes_is_stored_bit_for_bit(case: Case, made: Callable[[bytes], bytes]) -> None:
    """Also of buckets whose meta value a server would change, which are joined in the same step as others (W37)."""
    metas: list[Any] = [Timestamp(0, 0), "a", Timestamp(0, 0), {"t": Timestamp(0, 0)}, None, [Timestamp(0, 0)]]
    buckets = [[part_id(segment, place, each) for segment in (1, 2) for each in range(2)] for place in range(6)]
    for meta, ids in zip(metas, buckets, strict=True):
        case.store(*({"_id": each, **part(number, rows=9, s="x" * 99)} for number, each in enumerate(ids)))
        case.buckets.update_many({"_id": {"$in": ids}}, [{"$set": {"meta": {"$literal": meta}}}])
    joined: list[bytes] = []

    def keep(document: bytes) -> bytes:
        joined.append(made(document))
        return joined[-1]

    assert await case.joined_side_by_side(buckets, keep) == [4] * 6
    assert case.left() == [each[-1] for each in buckets]
    assert case.raw(case.left()) == joined
    assert [decode(each)["meta"] for each in joined] == metas
    assert [decode(each)["_id"] for each in joined] == case.left()


def test_a_native_delete_takes_parts_in_the_order_of_an_index(mongod: MongodProcess, db_name: str) -> None:
    """A descending index takes the last part first."""
    database = mongod.shared_client[db_name]
    database.create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
    database["c"].create_index([("m", 1), ("t", -1)], name="descending")
    buckets = database["system.buckets.c"]
    buckets.insert_many(three_parts(TOGETHER), bypass_document_validation=True)
    delete = {"delete": "system.buckets.c", "deletes": [{"q": {"meta": "a"}, "limit": 0}]}
    plan = database.command({"explain": delete, "verbosity": "queryPlanner"})["queryPlanner"]["winningPlan"]
    assert "'indexName': 'descending'" in str(plan)
    assert [each["_id"] for each in buckets.find({"meta": "a"}, hint="descending")] == TOGETHER[::-1]


@BOTH
async def test_an_append_while_parts_are_joined_is_refused_or_kept(case: Case) -> None:
    """The first document was open until now; another process goes on with it under its guard."""
    appended: list[int] = []

    def append(buckets: Collection[Any], ids: Ids) -> None:
        guard = {"_id": ids[0], "control.closed": {"$ne": True}, "data.t.1": {"$exists": False}}
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
    if not case.sealed:
        assert await case.joined_while(nothing, parts) == 3
    else:
        with pytest.raises(ValueError, match="too large"):
            await case.joined_while(nothing, parts)
    assert len(case.rows()) == 3


@pytest.mark.parametrize(("direction", "seen"), [(1, [0, 0, 1, 2]), (-1, [2])])
async def test_what_a_reader_past_the_proxy_may_meet(case: Case, direction: int, seen: list[int]) -> None:
    """A cursor that stands between two parts: forwards rows come twice, backwards they are missed."""
    met: list[dict[str, Any]] = []
    cursor = case.buckets.find({}, sort=[("$natural", direction)], batch_size=1)

    def read_one(buckets: Collection[Any], ids: Ids) -> None:
        met.append(next(cursor))

    assert await case.joined_while(read_one, [part(0), part(1), part(2)]) == 3
    met += list(cursor)
    assert [value for each in met for value in each["data"]["v"].values()] == seen


@BOTH
@pytest.mark.parametrize("case", ["replica_set"], indirect=True)
async def test_a_snapshot_sees_one_state(case: Case) -> None:
    met: list[dict[str, Any]] = []
    with case.buckets.database.client.start_session(snapshot=True) as session:
        case.store(*three_parts(case.ids))
        cursor = case.buckets.find({}, sort=[("$natural", -1)], batch_size=1, session=session)
        assert await case.joined_while(lambda *_: met.append(next(cursor)), []) == 3
        met += list(cursor)
    assert [value for each in met for value in each["data"]["v"].values()] == [2, 1, 0]


@pytest.mark.parametrize("case", ["mongod, alone", "mongod"], indirect=True)
@pytest.mark.parametrize("changed", range(9))
@pytest.mark.parametrize(
    "change",
    [{"$set": {"meta": 0}}, {"$set": {"meta": 1}}, {"$set": {"meta": None}}, {"$unset": {"meta": 1}}],
    ids=["to that of the first", "to that of the second", "to null", "to nothing"],
)
async def test_a_step_undoes_no_change_of_meta_in_any_of_its_buckets(
    case: Case, changed: int, change: dict[str, Any]
) -> None:
    """Also if it becomes that of another bucket of the step."""
    if change.get("$set") == {"meta": changed // 3}:
        change = {"$set": {"meta": 2}}
    case.store(*nine_parts())
    prepared = await case.prepared([NINE[0:3], NINE[3:6], NINE[6:9]])
    case.buckets.update_one({"_id": NINE[changed]}, change)
    before = list(case.buckets.find())
    with pytest.raises(CommandError):
        await prepared.commit()
    assert list(case.buckets.find()) == before


async def test_several_buckets_are_joined_in_one_step(case: Case) -> None:
    """What lies between them stays, and one that was joined before is told by its count."""
    parts = nine_parts()
    case.store(*parts[:6], *parts[8:])
    assert await case.joined_side_by_side([NINE[:3], NINE[3:5], NINE[6:]]) == [3, 2, 1]
    assert case.left() == [NINE[2], NINE[4], NINE[5], NINE[8]]
    assert case.rows() == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]


async def test_one_that_is_gone_is_told_and_the_others_are_joined(case: Case) -> None:
    case.store(*nine_parts()[:6])
    assert await case.joined_side_by_side([NINE[:3], NINE[3:6], NINE[6:]]) == [3, 3, None]
    assert case.left() == [NINE[2], NINE[5]]


@BOTH
@pytest.mark.parametrize("deleted", range(3))
async def test_what_a_delete_has_left_is_joined(case: Case, deleted: int) -> None:
    """All rows of a part were deleted, perhaps of the last one, whose id the bucket would have got."""
    left = [number for number in range(3) if number != deleted]
    case.store(*(document for number, document in enumerate(three_parts(case.ids)) if number != deleted))
    prepared = await case.prepared([case.ids])
    await prepared.commit()
    assert prepared.found == [Found(2, case.ids[left[-1]].binary)]
    assert case.left() == [case.ids[left[-1]]]
    assert case.rows() == [("a", number) for number in left]


async def test_parts_of_several_buckets_in_two_segments_are_joined_in_one_step(case: Case) -> None:
    """The documents of others between them stay as they are: before, between and behind, and between the segments."""
    ours = [[part_id(segment, place, each) for segment in (2, 3) for each in range(3)] for place in (500, 501, 510)]
    others = [part_id(segment, place, 0) for segment in (2, 3) for place in (499, 502, 505, 511)]
    others += [part_id(segment, place, each) for segment in (1, 4) for place in (500, 501) for each in range(3)]
    others += [part_id(2, 700, 0), part_id(3, 1, 0)]
    for number, ids in enumerate(ours):
        case.store(*({"_id": each, **part(place, rows=2, meta=number)} for place, each in enumerate(ids)))
    case.store(*({"_id": each, **part(50, meta="other")} for each in others))
    rows, before = case.rows(), case.raw(others)
    assert await case.joined_side_by_side(ours) == [6, 6, 6]
    assert case.left() == sorted([*others, *(ids[-1] for ids in ours)])
    assert case.raw(others) == before
    assert Counter(map(str, case.rows())) == Counter(map(str, rows))
    assert await case.joined_side_by_side(ours) == [1, 1, 1], "they were joined before"
    assert case.raw(others) == before


@BOTH
async def test_what_others_store_among_the_parts_meanwhile_stays(case: Case) -> None:
    """Other buckets get parts all the time, whose ids lie between those that are joined."""
    come = [part_id(segment, place, 0) for segment in (1, 2) for place in (499, 501)]
    come += [ObjectId(case.ids[1].binary[:9] + b"\0\1\0")]
    beside = [part_id(2, 502, each) for each in range(3)]
    case.store(*three_parts(case.ids), *three_parts(beside, meta="b"))
    merged = 0

    def come_between(joined: bytes) -> bytes:
        nonlocal merged
        if not merged:
            case.store(*({"_id": each, **part(7, meta="other")} for each in come))
        merged += 1
        return joined

    assert await case.joined_side_by_side([case.ids, beside], come_between) == [3, 3]
    assert case.left() == sorted([*come, case.ids[-1], beside[-1]])
    assert len(case.rows()) == 6 + len(come)


@pytest.mark.parametrize("case", ["replica_set"], indirect=True)
@pytest.mark.parametrize("between", [0, 1, 5], ids="{} documents of others between".format)
async def test_few_statements_delete_the_parts_of_many_buckets(case: Case, between: int) -> None:
    """Each of them costs the server as much as many documents."""
    ours = [[part_id(segment, 10 * place, each) for segment in (1, 2) for each in range(3)] for place in range(40)]
    others = [
        part_id(segment, 10 * place + 1, each) for segment in (1, 2) for place in range(40) for each in range(between)
    ]
    for place, ids in enumerate(ours):
        case.store(*({"_id": each, **part(number, meta=place)} for number, each in enumerate(ids)))
    if others:
        case.store(*({"_id": each, **part(9, meta="other")} for each in others))
    assert await case.joined_side_by_side(ours) == [6] * 40
    assert case.left() == sorted([*others, *(ids[-1] for ids in ours)])
    assert len(case.pool.statements("delete", "deletes")) == 2
    assert sum("find" in each for each in case.pool.sent) == 2
    assert sum("insert" in each for each in case.pool.sent) == 1
    assert not case.pool.statements("update", "updates")


async def test_spans_with_much_between_them_are_joined_all_the_same(case: Case) -> None:
    """They are read one by one, so that little of what lies between is read along."""
    between = [{"_id": part_id(1, 500, each + 3), **part(0)} for each in range(200)]
    case.store(*nine_parts(), *between)
    assert await case.joined_side_by_side([NINE[:3], NINE[3:6]]) == [3, 3]
    assert case.buckets.count_documents({}) == 209 - 4
    assert len(case.rows()) == 209
    assert sum("find" in each for each in case.pool.sent) == 3


async def test_spans_with_large_documents_between_them_are_joined_all_the_same(case: Case) -> None:
    """A reply of a server has 16 MB at most; what it has left out is there."""
    ours = [[*NINE[first : first + 3], part_id(2, place, 0)] for first, place in ((0, 500), (3, 501))]
    between = [part_id(1, 500, counter) for counter in range(3, 23)]
    case.store(*(each for ids in ours for each in three_parts(ids)))
    case.store(*({"_id": each, **part(0, payload="x" * 1_000_000)} for each in between))
    assert await case.joined_side_by_side([ours[0][:3], ours[1]]) == [3, 4]
    assert case.left() == sorted([ours[0][2], ours[0][3], *between, ours[1][3]])


async def test_the_latest_parts_are_joined_behind_a_run_that_stays(case: Case) -> None:
    """Of several buckets in one step."""
    case.store(*nine_parts())
    rows = case.rows()
    assert await case.joined_side_by_side([NINE[1:3], NINE[4:6], NINE[7:]]) == [2, 2, 2]
    assert case.left() == [NINE[number] for number in (0, 2, 3, 5, 6, 8)]
    assert case.rows() == rows


async def test_what_is_merged_wrongly_is_not_written(case: Case) -> None:
    """The parts stay as they are, and nothing holds them: the next join is let in at once."""
    case.store(*({"_id": each, **part(number, rows=4 >> number)} for number, each in enumerate(case.ids)))
    with pytest.raises(Differs):
        await case.prepared([case.ids], differing)
    assert case.rows() == [("a", 0)] * 4 + [("a", 1)] * 2 + [("a", 2)]
    status = case.buckets.database.client.admin.command("serverStatus")
    assert status.get("transactions", {}).get("currentOpen", 0) == 0
    assert await case.joined_while(nothing, []) == 3
    assert case.left() == [case.ids[-1]]
