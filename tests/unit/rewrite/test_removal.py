"""What a delete does when others change the buckets that it reads: it looks again (U8, W125)."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import bson
import pytest
from bson import Int64, ObjectId
from bson.codec_options import CodecOptions
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

from catalog.bson.codec import CODEC
from catalog.errors import CommandError
from catalog.kernel import bucket_id, parse_measurement
from catalog.namespaces import Granularity, Namespace, TimeseriesOptions, VirtualCollection
from catalog.parts import bucket_of
from rewrite.bucket_reads import TAG, Selection
from rewrite.bucket_writes import SMALL_BUCKET_BYTES, Removal, WholeCommandFailed, unchanged
from rewrite.plan import ClearBuckets, Step
from rewrite.profile import Profile
from rewrite.removal import ATTEMPTS, ROWS_AT_ONCE, remove_all, remove_one
from tests.support.mongod import MongodProcess

NOON = 1_700_000_040_000
ID = ObjectId()
X = VirtualCollection(Namespace("db", "x"), TimeseriesOptions("t", "m", Granularity.SECONDS, 3600, 60))
OK = {"ok": 1.0}
RAW_CODEC: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


def raw(document: Mapping[str, Any]) -> RawBSONDocument:
    """As steps with ``raw`` answer."""
    return RawBSONDocument(bson.encode(document, codec_options=CODEC))


class Script:
    """Answers the steps of a removal as one bucket with two measurements would, and notes what was asked."""

    def __init__(self, guards_that_fail: int = 0) -> None:
        self.guards_that_fail = guards_that_fail
        self.said: list[str] = []
        times = {str(number): DatetimeMS(NOON + number) for number in range(2)}
        bounds = {"t": DatetimeMS(NOON)}
        self.bucket = {"_id": ID, "control": {"version": 1, "min": bounds, "max": bounds}, "data": {"t": times}}
        self.rows = [{"t": DatetimeMS(NOON + n), "v": n, TAG: {"id": ID}} for n in range(2)]
        self.pages = 0
        self.matches = iter([1])
        """The number of matches that each search finds."""

    def run(self, conversation: Any) -> Any:
        """Carry it to its end; its result."""
        answer: Any = None
        try:
            while True:
                said = conversation.send(answer)
                answer = {} if isinstance(said, ClearBuckets) else self.answer(said)
                if isinstance(said, ClearBuckets):
                    assert said.bucket_ids == (ID.binary,)
                    self.said.append("clear")
        except StopIteration as stop:
            return stop.value

    def answer(self, step: Step) -> Mapping[str, Any]:
        """One reply."""
        if "update" in step.body or "delete" in step.body:
            self.said.append("write")
            self.guards_that_fail -= 1
            return {"n": int(self.guards_that_fail < 0), **OK}
        pipeline = step.body["pipeline"]
        kinds = [next(iter(stage)) for stage in pipeline]
        if "$group" in kinds:
            self.said.append("search")
            found = [{"_id": ID, "rows": next(self.matches)}]
            return {"cursor": {"id": 0, "firstBatch": found if found[0]["rows"] else []}, **OK}
        if "$project" in kinds:
            self.pages += 1
            candidates: list[Any] = [{"_id": ID, "rows": None}] if self.pages == 1 else []
            return {"cursor": {"id": 0, "firstBatch": candidates}, **OK}
        if "$_internalUnpackBucket" not in kinds:
            self.said.append("bucket")
            return {"cursor": {"id": 0, "firstBatch": [raw(self.bucket)]}, **OK}
        matching = kinds[-1] == "$match" or "$limit" in kinds
        self.said.append("matches" if matching else "rows")
        rows = self.rows[:1] if matching else self.rows
        if not any(stage.get("$_internalUnpackBucket", {}).get("metaField") == TAG for stage in pipeline):
            rows = [{name: value for name, value in row.items() if name != TAG} for row in rows]
        return {"cursor": {"id": 0, "firstBatch": [raw(row) for row in rows]}, **OK}


def selection() -> Selection:
    """Deletes the first row."""
    return Selection(X, Profile(), {"v": 0})


LOOK = ["matches", "clear", "bucket", "rows", "write", "clear"]


def test_the_bucket_leaves_the_catalog_before_and_after_the_write() -> None:
    """It is read first, its rows after it, so that a change in between fails the guard."""
    script = Script()
    assert script.run(remove_all(Removal(), selection())) == 1
    assert script.said == ["search", *LOOK]


def test_a_bucket_that_a_range_of_times_may_cover_is_a_candidate() -> None:
    """All of its rows may go at once, so nothing is unpacked to find it."""
    script = Script()
    assert script.run(remove_all(Removal(), Selection(X, Profile(), {"t": {"$lt": DatetimeMS(NOON + 1)}}))) == 1
    assert script.said == LOOK


@pytest.mark.parametrize(
    ("matches", "searches"),
    [([0], 1), ([ROWS_AT_ONCE - 1], 1), ([ROWS_AT_ONCE, ROWS_AT_ONCE, 5], 3), ([ROWS_AT_ONCE, 0], 2)],
)
def test_matches_are_searched_for_again_while_there_may_be_more(matches: list[int], searches: int) -> None:
    script = Script()
    script.matches = iter(matches)
    assert script.run(remove_all(Removal(), selection())) == len([each for each in matches if each])
    assert script.said.count("search") == searches


def test_the_search_ends_when_others_removed_what_was_found() -> None:
    script = Script()
    script.matches, script.rows = iter([ROWS_AT_ONCE]), []
    assert script.run(remove_all(Removal(), selection())) == 0
    assert script.said == ["search", "matches"]


def test_a_bucket_that_others_changed_is_looked_at_again() -> None:
    script = Script(guards_that_fail=2)
    assert script.run(remove_all(Removal(), selection())) == 1
    assert script.said == ["search", *LOOK * 3]


def test_a_bucket_that_never_holds_still_is_an_error_in_the_end() -> None:
    script = Script(guards_that_fail=ATTEMPTS)
    with pytest.raises(CommandError) as given_up:
        script.run(remove_all(Removal(), selection()))
    assert given_up.value.code == 112


def test_a_single_delete_finds_its_measurement_anew() -> None:
    script = Script(guards_that_fail=1)
    assert script.run(remove_one(Removal(), selection())) is True
    assert script.said == ["matches", *LOOK] * 2


def everything_in(value: Any) -> list[Any]:
    """A value with all that it holds."""
    match value:
        case dict():
            return [value, *(found for inner in value.values() for found in everything_in(inner))]
        case list():
            return [found for inner in value for found in everything_in(inner)]
        case _:
            return [value]


def test_a_small_bucket_is_guarded_as_a_whole() -> None:
    bucket = bson.encode({"_id": ID, "control": {"version": 1}, "data": {"t": {"0": 1}}})
    guard = unchanged(ID, bucket, "t")
    assert {"$literal": RawBSONDocument(bucket)} in everything_in(guard)


def test_a_large_bucket_is_guarded_by_its_summaries_and_times() -> None:
    """Two copies of it would not fit into one statement."""
    data = {"t": {"0": 1}, "v": {"0": b"." * SMALL_BUCKET_BYTES}}
    guard = unchanged(ID, bson.encode({"_id": ID, "control": {"version": 1}, "data": data}), "t")
    assert len(bson.encode(guard)) < 1000
    assert "$control" in everything_in(guard)
    literals = [value["$literal"] for value in everything_in(guard) if isinstance(value, dict) and "$literal" in value]
    assert dict(literals[-1]) == {"0": 1}


META_CHANGES: dict[str, tuple[Any, Any, int]] = {
    "text": ("b", "c", 2),
    "length": (1, 1.0, 2),
    "equal": (Int64(1), 1.0, 1),
    "equal_inside": ({"x": Int64(1)}, {"x": 1.0}, 1),
    "order": ({"x": 1, "y": 2}, {"y": 2, "x": 1}, 2),
}
"""Before and after, and how often the rows are written: a change to an equal value is nothing to look at again for."""


@pytest.mark.parametrize("size_bytes", [100, SMALL_BUCKET_BYTES + 1000])
@pytest.mark.parametrize("change", META_CHANGES)
def test_a_change_of_meta_meanwhile_is_not_undone(
    mongod: MongodProcess, db_name: str, size_bytes: int, change: str
) -> None:
    """On a server: the series gets another meta value after the bucket was read, before it is written."""
    before, after, expected = META_CHANGES[change]
    database = mongod.shared_client.get_database(db_name, codec_options=CODEC)
    database.create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    buckets = database["system.buckets.x"]
    rows = [{"t": DatetimeMS(NOON + n), "m": before, "v": n, "p": "p" * (size_bytes // 2)} for n in range(2)]
    measurements = [parse_measurement(bson.encode(row, codec_options=CODEC), b"t", b"m") for row in rows]
    document = bucket_of(bucket_id(NOON, bytes(8)), b"t", b"m", measurements[0].meta, NOON, measurements)
    assert (len(document) > SMALL_BUCKET_BYTES) == (size_bytes > 100)
    buckets.insert_one(RawBSONDocument(document))
    where = Selection(VirtualCollection(Namespace(db_name, "x"), X.options), Profile(), {"v": 0})
    conversation = remove_all(Removal(), where)
    writes = 0

    def answered(said: Any) -> Any:
        nonlocal writes
        if not isinstance(said, Step):
            return {}
        if "update" in said.body:
            writes += 1
            if writes == 1:
                buckets.update_many({}, {"$set": {"meta": after}})
        return database.command(dict(said.body), codec_options=RAW_CODEC if said.raw else CODEC)

    def carried_out() -> Generator[Any, Any, int]:
        removed = yield from conversation
        assert removed == 1
        return removed

    talk = carried_out()
    said: Any = next(talk)
    while not isinstance(said, int):
        try:
            said = talk.send(answered(said))
        except StopIteration as end:
            said = end.value
    assert writes == expected
    (left,) = database["x"].find()
    assert bson.encode({"m": left["m"]}) == bson.encode({"m": after})
    assert left["v"] == 1


def test_a_refused_write_ends_the_command() -> None:
    """As a write concern that cannot be satisfied does."""
    conversation = Removal().delete(selection(), [{"_id": ID}])
    next(conversation)
    with pytest.raises(WholeCommandFailed):
        conversation.send({"ok": 0.0, "code": 2, "errmsg": "cannot use 'w' > 1 when a host is not replicated"})
