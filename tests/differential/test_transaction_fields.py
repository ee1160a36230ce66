"""``startTransaction``, ``autocommit`` and ``txnNumber`` that no server accepts: nothing is executed (X1)."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Int64

from tests.support.read_twins import fill
from tests.support.twins import Twins, exact, masked
from tests.support.wire import WireClient

COMMANDS: list[dict[str, Any]] = [
    {"find": "x"},
    {"aggregate": "x", "pipeline": [], "cursor": {}},
    {"aggregate": "x", "pipeline": [{"$collStats": {"storageStats": {}}}], "cursor": {}},
    {"count": "x"},
    {"distinct": "x", "key": "m.a"},
    {"distinct": "x", "key": "v"},
    {"explain": {"find": "x"}},
    {"collStats": "x"},
    {"serverStatus": 1},
    {"buildInfo": 1},
    {"delete": "x", "deletes": [{"q": {"m.a": 1}, "limit": 0}]},
    {"delete": "x", "deletes": [{"q": {"v": 1}, "limit": 1}]},
    {"update": "x", "updates": [{"q": {"m.a": 1}, "u": {"$set": {"m.b": 2}}, "multi": True}]},
    {"findAndModify": "x", "query": {"v": 1}, "remove": True},
    {"insert": "x", "documents": [{"v": 1}]},
    {"drop": "x"},
]
NUMBER = {"txnNumber": Int64(1)}
ODD: list[dict[str, Any]] = [
    {"startTransaction": True},
    {"startTransaction": False},
    {"startTransaction": True, "stmtId": 1},
    {"startTransaction": True, **NUMBER},
    {"autocommit": True},
    {"autocommit": True, "startTransaction": True},
    {"autocommit": True, **NUMBER},
    {"autocommit": False},
    {"autocommit": False, "startTransaction": True},
    {"startTransaction": 1},
    {"autocommit": 0},
    {"txnNumber": "1"},
    {"txnNumber": Int64(-1)},
]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_x1_what_no_server_accepts_is_refused_by_it(twins: Twins, odd: dict[str, Any]) -> None:
    check(twins, odd)


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_x1_so_it_is_on_a_replica_set(set_twins: Twins, odd: dict[str, Any]) -> None:
    check(set_twins, odd)


def check(twins: Twins, odd: dict[str, Any]) -> None:
    fill(twins, count=8)
    kept = twins.same({"find": "x", "sort": {"_id": 1}})["cursor"]["firstBatch"]
    for command in COMMANDS:
        native, virtual = twins.both({**command, **odd})
        assert native["ok"] == 0, command
        assert [virtual.get(name) for name in ("ok", "code", "errmsg")] == [0, native["code"], native["errmsg"]]
    assert twins.same({"find": "x", "sort": {"_id": 1}})["cursor"]["firstBatch"] == kept


@pytest.mark.parametrize("command", [each for each in COMMANDS if next(iter(each)) not in ("insert", "drop")], ids=str)
def test_x2_a_number_outside_of_a_transaction_is_for_retryable_writes(
    set_twins: Twins, command: dict[str, Any]
) -> None:
    fill(set_twins, count=8)
    native, virtual = (
        # Never ended, so that no other test gets the session, whose number this one has used.
        side.command({**command, **NUMBER}, session=side.client.start_session(), check=False)
        for side in (set_twins.native, set_twins.virtual)
    )
    if next(iter(command)) in ("delete", "update", "findAndModify"):
        assert virtual["ok"] == 1
    else:
        assert native["ok"] == 0
        assert [virtual[name] for name in ("ok", "code", "errmsg")] == [0, native["code"], native["errmsg"]]


def test_x1_a_cursor_goes_on_after_what_is_refused(set_twins: Twins) -> None:
    fill(set_twins, count=8)
    for odd in ({}, {"startTransaction": True}, {"autocommit": True}, NUMBER):
        replies = []
        for side in (set_twins.native, set_twins.virtual):
            with side.client.start_session() as session:
                options = {"session": session, "check": False}
                cursor = side.command({"find": "x", "batchSize": 2, "sort": {"_id": 1}}, **options)["cursor"]
                more = {"getMore": Int64(cursor["id"]), "collection": "x"}
                first = side.command({**more, **odd}, **options)
                again = side.command(more, **options)
                replies.append([(reply.get("code"), len(reply.get("cursor", ()))) for reply in (first, again)])
        assert replies[0] == replies[1], odd


@pytest.mark.parametrize("ids", [[], [1], [Int64(1), 2]], ids=str)
def test_x1_ids_of_statements_are_for_writes(set_twins: Twins, ids: list[int]) -> None:
    """Also where the same command without them was executed before."""
    fill(set_twins, count=8)
    reads = [each for each in COMMANDS if next(iter(each)) in ("find", "aggregate", "count", "distinct")]
    for command in reads:
        set_twins.both(command)
        reply = set_twins.same({**command, "stmtIds": ids})
        assert reply["code"] == 40415
    (remove,) = (each for each in COMMANDS if "findAndModify" in each)
    set_twins.same({**remove, "stmtIds": ids})
    cursors = set_twins.both({"find": "x", "batchSize": 2})
    for side, cursor in zip((set_twins.native, set_twins.virtual), cursors, strict=True):
        more = {"getMore": cursor["cursor"]["id"], "collection": "x", "stmtIds": ids}
        assert side.command(more, check=False)["code"] == 40415


UNUSUAL: list[dict[str, Any]] = [
    {"startTransaction": None},
    {"autocommit": None},
    {"txnNumber": None},
    {"stmtId": None},
    {"stmtIds": None},
    {"maxTimeMS": None},
    {"batchSize": None},
    {"batchSize": 2.5},
    {"batchSize": "2"},
    {"startTransaction": 1},
    {"txnNumber": "1"},
    {"lsid": 5},
]


@pytest.mark.parametrize("odd", UNUSUAL, ids=str)
@pytest.mark.parametrize("on", ["standalone", "replica set"])
def test_more_of_a_cursor_with_fields_of_unusual_types(
    twins: Twins, set_twins: Twins, on: str, odd: dict[str, Any]
) -> None:
    pair = twins if on == "standalone" else set_twins
    fill(pair, count=8)
    replies = []
    for side in (pair.native, pair.virtual):
        # Commands without the session that a driver adds.
        with WireClient(side.client.address[1]) as wire:
            name = {"$db": side.name}
            cursor = wire.command({"find": "x", "sort": {"_id": 1}, "batchSize": 2, **name})["cursor"]
            more = {"getMore": cursor["id"], "collection": "x", **odd, **name}
            reply = masked(wire.command(more), side.name)
            reply.get("cursor", {}).pop("id", 0)
            replies.append(exact(reply))
    assert replies[1] == replies[0]
