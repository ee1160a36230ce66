from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.tools.bench.shapes import CHECK_FIELD, of_template, shape_of
from proxy.tools.bench.sides import Side, Unreachable, WrongSide
from proxy.tools.bench.tally import Tally
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port

SHAPE = shape_of("metrics")


@pytest.fixture
def side(mongod: MongodProcess, db_name: str) -> Iterator[Side]:
    made = Side("direct", mongod.uri, db_name)
    yield made
    made.close()


def test_a_collection_of_its_own_in_a_database_that_is_gone_afterwards(
    mongod: MongodProcess, db_name: str, side: Side
) -> None:
    side.check(may_exist=False)
    side.make(SHAPE)
    (name,) = [each for each in mongod.shared_client[db_name].list_collection_names() if not each.startswith("system.")]
    assert name == side.target.collection
    assert name.startswith("direct_")
    options = mongod.shared_client[db_name][name].options()
    assert (options["timeseries"]["timeField"], options["timeseries"]["metaField"]) == ("at", "tags")
    assert side.remove() == ""
    assert db_name not in mongod.shared_client.list_database_names()


def test_without_a_meta_field(mongod: MongodProcess, db_name: str, side: Side) -> None:
    side.make(of_template("x", {"t": "$time"}))
    assert "metaField" not in mongod.shared_client[db_name][side.target.collection].options()["timeseries"]


def test_an_existing_database_is_refused_or_keeps_what_it_has(mongod: MongodProcess, db_name: str, side: Side) -> None:
    mongod.shared_client[db_name].mine.insert_one({})
    with pytest.raises(WrongSide, match="--into-existing"):
        side.check(may_exist=False)
    side.check(may_exist=True)
    side.make(SHAPE)
    assert side.remove() == ""
    assert mongod.shared_client[db_name].mine.count_documents({}) == 1
    assert side.target.collection not in mongod.shared_client[db_name].list_collection_names()


def test_what_others_have_made_meanwhile_stays(mongod: MongodProcess, db_name: str, side: Side) -> None:
    side.check(may_exist=False)
    side.make(SHAPE)
    mongod.shared_client[db_name].other.insert_one({})
    assert side.remove() == ""
    assert mongod.shared_client[db_name].other.count_documents({}) == 1


def test_nothing_is_dropped_that_was_not_made(mongod: MongodProcess, db_name: str, side: Side) -> None:
    mongod.shared_client[db_name][side.target.collection].insert_one({})
    assert side.remove() == ""
    assert mongod.shared_client[db_name][side.target.collection].count_documents({}) == 1


@pytest.mark.parametrize(
    ("expected", "is_complete"),
    [
        (Tally(rows=2, check=12), True),
        (Tally(rows=3, check=12), False),
        (Tally(rows=1, check=12), False),
        (Tally(rows=2, check=11), False),
        (Tally(rows=1, check=5, unknown_rows=1), True),
        (Tally(rows=2, check=5, unknown_rows=1), True),
        (Tally(rows=3, check=5, unknown_rows=1), False),
        (Tally(rows=0, check=0, unknown_rows=1), False),
    ],
)
def test_what_is_stored_is_compared_with_what_was_acknowledged(
    mongod: MongodProcess, db_name: str, side: Side, expected: Tally, is_complete: bool
) -> None:
    mongod.shared_client[db_name][side.target.collection].insert_many([{CHECK_FIELD: 5}, {CHECK_FIELD: 7}])
    stored = side.stored(expected)
    assert (stored.rows, stored.check, stored.is_complete) == (2, 12, is_complete)


def test_nothing_stored_is_zero_rows(side: Side) -> None:
    assert side.stored(Tally()).is_complete
    assert not side.stored(Tally(rows=1, check=1)).is_complete


def test_servers_that_cannot_be_reached_are_named() -> None:
    nowhere = Side("proxy", f"mongodb://me:hidden@{LOOPBACK}:{free_port()}/?serverSelectionTimeoutMS=20", "x")
    assert "hidden" not in nowhere.uri
    with pytest.raises(Unreachable, match="--proxy: cannot reach") as raised:
        nowhere.check(may_exist=False)
    assert "hidden" not in str(raised.value)
    with pytest.raises(Unreachable):
        nowhere.make(SHAPE)
    with pytest.raises(Unreachable):
        nowhere.stored(Tally())
    assert "drop it yourself" in nowhere.remove()
    nowhere.close()


@pytest.mark.parametrize("uri", ["", "db.example:27017", "mongodb://", "mongodb://me:hidden@a:b:c/"])
def test_connection_strings_that_are_not_valid(uri: str) -> None:
    with pytest.raises(WrongSide, match=r"--proxy: .*connection string") as raised:
        Side("proxy", uri, "x")
    assert "hidden" not in str(raised.value)


def test_writes_must_be_acknowledged() -> None:
    made = Side("proxy", "mongodb://db.example/?w=0&connect=false", "x")
    with pytest.raises(WrongSide, match="acknowledged writes"):
        made.check(may_exist=False)
    made.close()
