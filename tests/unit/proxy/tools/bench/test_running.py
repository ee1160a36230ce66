from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.tools.bench.running import BenchOptions, run
from proxy.tools.bench.shapes import shape_of
from proxy.tools.bench.sides import Side, Unreachable
from tests.support.mongod import MongodProcess

SHAPE = shape_of("iot")


@pytest.fixture
def sides(mongod: MongodProcess, db_name: str) -> Iterator[list[Side]]:
    """Both are the same server here."""
    made = [Side(name, mongod.uri, db_name) for name in ("proxy", "direct")]
    for side in made:
        side.make(SHAPE)
    yield made
    for side in made:
        side.close()


def test_rounds_alternate_and_everything_is_checked(sides: list[Side], db_name: str) -> None:
    seen: list[tuple[float, str]] = []
    options = BenchOptions(SHAPE, db_name, connections=2, seconds=0.15, rounds=2, series=3, readers=1, processes=1)
    measured = run(options, sides, lambda seconds, label: seen.append((seconds, label)))
    assert options.planned_seconds == pytest.approx(0.6)
    labels = list(dict.fromkeys(label for _, label in seen))
    assert labels == ["warm-up of proxy", "warm-up of direct", "proxy", "direct", "checking proxy", "checking direct"]
    order = [label for _, label in seen if label in ("proxy", "direct")]
    assert [each for at, each in enumerate(order) if not at or order[at - 1] != each] == ["proxy", "direct", "proxy"]
    assert [seconds for seconds, _ in seen] == sorted(seconds for seconds, _ in seen)
    for each in measured.values():
        assert len(each.rounds) == 2
        assert each.whole.rows == sum(tally.rows for tally in each.rounds) > 0
        assert each.acknowledged.rows == each.whole.rows + each.warm_up.rows
        assert each.stored is not None
        assert each.stored.is_complete
        assert each.stored.rows == each.acknowledged.rows


def test_without_a_warm_up(sides: list[Side], db_name: str) -> None:
    options = BenchOptions(SHAPE, db_name, connections=1, seconds=0.1, rounds=1, series=1, processes=1, fills=False)
    measured = run(options, sides, lambda seconds, label: None)
    assert all(each.warm_up.rows == 0 and each.whole.rows > 0 for each in measured.values())


def test_a_side_that_stores_nothing_ends_the_bench(mongod: MongodProcess, sides: list[Side], db_name: str) -> None:
    database = mongod.shared_client[db_name]
    database.drop_collection(sides[1].target.collection)
    database.create_collection(sides[1].target.collection, validator={"never": 1})
    options = BenchOptions(SHAPE, db_name, connections=1, seconds=0.1, rounds=1, series=1, processes=1, fills=False)
    with pytest.raises(Unreachable, match=r"--direct: no row was stored: .*121"):
        run(options, sides, lambda seconds, label: None)


def test_processes_are_no_more_than_connections(db_name: str) -> None:
    assert BenchOptions(SHAPE, db_name, connections=3, processes=9).process_count == 3
    assert BenchOptions(SHAPE, db_name, connections=64, processes=9).process_count == 9
    assert BenchOptions(SHAPE, db_name, connections=1).process_count == 1
