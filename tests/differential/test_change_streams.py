"""Change streams beside time-series collections (C23)."""

from __future__ import annotations

from typing import Any

from pymongo.change_stream import DatabaseChangeStream

from tests.support.read_twins import at, fill
from tests.support.twins import Commands, Twins

Events = list[tuple[str, str | None]]


def events(stream: DatabaseChangeStream[dict[str, Any]], last: str) -> Events:
    """The kinds of events and their collections, up to the insert into ``last``."""
    found: Events = []
    for event in stream:
        found.append((event["operationType"], event.get("ns", {}).get("coll")))
        if found[-1] == ("insert", last):
            break
    return found


def write(side: Commands) -> None:
    """Measurements in old and new collections, which are changed, deleted and dropped."""
    rows = [{"_id": n, "t": at(n), "m": {"a": n % 3}, "v": n} for n in range(100, 110)]
    side.command({"insert": "x", "documents": rows})
    side.command({"update": "x", "updates": [{"q": {"m.a": 1}, "u": {"$set": {"m.b": 2}}, "multi": True}]}, check=False)
    side.command({"delete": "x", "deletes": [{"q": {"m.a": 2}, "limit": 0}]}, check=False)
    side.command({"create": "y", "timeseries": {"timeField": "t"}})
    side.command({"insert": "y", "documents": rows})
    side.command({"drop": "y"})
    side.command({"insert": "plain", "documents": [{"_id": 1}]})


def test_c23_streams_show_neither_measurements_nor_buckets(set_twins: Twins, mongod_version: tuple[int, ...]) -> None:
    fill(set_twins)
    for expanded in (False, True)[: 1 if mongod_version < (6, 0) else 2]:
        found = []
        for side in (set_twins.native, set_twins.virtual):
            database = side.client[side.name]
            options: dict[str, Any] = {"show_expanded_events": True} if expanded else {}
            with (
                database.watch(**options) as ours,
                side.client.watch([{"$match": {"ns.db": side.name}}], **options) as of_all,
            ):
                database.drop_collection("plain")
                database.create_collection("plain")
                write(side)
                found.append(
                    [[each for each in events(stream, "plain") if each[1] != "plain"] for stream in (ours, of_all)]
                )
        native, virtual = found
        assert virtual == native
        assert virtual == 2 * [[("create", "y"), ("drop", "y")] if expanded else []]


def test_c23_streams_of_one_collection_are_refused(set_twins: Twins) -> None:
    fill(set_twins)
    for name, code in (("x", 166), ("system.buckets.x", 73)):
        reply = set_twins.same({"aggregate": name, "pipeline": [{"$changeStream": {}}], "cursor": {}})
        assert reply["code"] == code
