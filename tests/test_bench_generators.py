"""The load generators of the bench, compiled and in Python; ``make bench-smoke`` runs whole measurements."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bson import ObjectId

from bench import generator
from bench.documents import BASE_MS, IOT
from bench.generator import Load, LoadFailed
from bench.messages import insert_template
from bench.processes import free_port
from tests.support.mongod import MongodProcess

ROOT = Path(__file__).parent.parent


PYTHON = (sys.executable, "-m", "bench.loadgen_python")


@pytest.mark.parametrize("prefix", [None, PYTHON], ids=["compiled", "python"])
def test_a_generator_stores_what_its_arguments_say(
    mongod: MongodProcess, db_name: str, prefix: tuple[str, ...] | None
) -> None:
    """The same whichever form of the generator and however many connections."""
    template = insert_template(db_name, "iot", IOT, 5)
    load = Load(mongod.port, template, connections=2, operations=8, series=4, sharing="partitioned", expect_n=5)
    result = generator.Running(load, prefix).result()
    assert (result.operations, result.measurements) == (8, 40)
    stored = list(mongod.shared_client[db_name]["iot"].find(sort=[("device", 1), ("time", 1)]))
    assert len({document["_id"] for document in stored}) == 40
    assert stored[0]["_id"] == ObjectId("000000010000000000000000")
    assert {document["device"] for document in stored} == {f"dev-000000{number}" for number in range(4)}
    first = [document for document in stored if document["device"] == "dev-0000000"]
    times = [document["time"].timestamp() for document in first]
    assert [later - times[0] for later in times] == [float(step) for step in range(len(first))]
    assert 0 <= stored[0]["temperature"] <= 10
    assert BASE_MS == 1_704_067_200_000


@pytest.mark.parametrize("prefix", [None, PYTHON], ids=["compiled", "python"])
def test_a_generator_starts_no_more_than_one_operation_in_an_interval(
    mongod: MongodProcess, db_name: str, prefix: tuple[str, ...] | None
) -> None:
    template = insert_template(db_name, "iot", IOT, 1)
    load = Load(mongod.port, template, connections=2, seconds=1.0, interval_ms=250, expect_n=1)
    result = generator.Running(load, prefix).result()
    assert 2 <= result.operations_total <= 10
    by_number = Load(mongod.port, template, operations=3, interval_ms=100, expect_n=1, run=2)
    result = generator.Running(by_number, prefix).result()
    assert result.operations == 3
    assert result.seconds >= 0.2


@pytest.mark.parametrize("prefix", [None, PYTHON], ids=["compiled", "python"])
def test_a_generator_starts_operations_in_bursts_only(
    mongod: MongodProcess, db_name: str, prefix: tuple[str, ...] | None
) -> None:
    """An operation takes less than the pause, so that the last one of a burst ends within it."""
    template = insert_template(db_name, "iot", IOT, 1)
    pauses = Load(mongod.port, template, seconds=1.2, burst_ms=1, period_ms=400, expect_n=1)
    assert 1 <= generator.Running(pauses, prefix).result().operations_total <= 40
    steady = Load(mongod.port, template, seconds=1.2, expect_n=1, run=2)
    assert generator.Running(steady, prefix).result().operations_total > 100


@pytest.mark.parametrize("prefix", [None, PYTHON], ids=["compiled", "python"])
def test_a_generator_spreads_its_connections_over_ports(
    mongod: MongodProcess, db_name: str, prefix: tuple[str, ...] | None
) -> None:
    """The second connection goes to the second port, where nobody listens."""
    template = insert_template(db_name, "iot", IOT, 1)
    load = Load(mongod.port, template, more_ports=[free_port()], operations=2, expect_n=1)
    assert generator.Running(load, prefix).result().operations == 2
    with pytest.raises(LoadFailed):
        generator.Running(replace(load, connections=2, run=2), prefix).result()
