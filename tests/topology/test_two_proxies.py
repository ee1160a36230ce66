"""What the guide about several proxies says of cursors, load balancers and connection strings is so."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pymongo
import pytest
from bson import Int64
from pymongo.errors import ConfigurationError

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started
from tests.support.wire import WireClient

START = datetime(2024, 5, 18, tzinfo=UTC)


@pytest.fixture(scope="module")
def other(server_directory: Path, replica_set: MongodProcess) -> Iterator[ProxyProcess]:
    with started(ProxyProcess(server_directory / "other_proxy", replica_set.uri)) as process:
        yield process


def fill(proxy: ProxyProcess, name: str) -> None:
    with proxy.client() as client:
        client[name].create_collection("points", timeseries={"timeField": "t"})
        client[name].points.insert_many([{"t": START + timedelta(seconds=number)} for number in range(1_000)])


def test_cursors_go_on_at_any_proxy(proxy_rs: ProxyProcess, other: ProxyProcess, db_name: str) -> None:
    fill(proxy_rs, db_name)
    with WireClient(proxy_rs.port) as here, WireClient(proxy_rs.port) as also_here, WireClient(other.port) as there:
        found = here.command({"find": "points", "batchSize": 5, "$db": db_name})
        more = {"getMore": Int64(found["cursor"]["id"]), "collection": "points", "batchSize": 5, "$db": db_name}
        assert len(there.command(more)["cursor"]["nextBatch"]) == 5
        assert len(there.command(more)["cursor"]["nextBatch"]) == 5
        assert len(also_here.command(more)["cursor"]["nextBatch"]) == 5


def test_drivers_keep_cursors_at_one_of_two_proxies(proxy_rs: ProxyProcess, other: ProxyProcess, db_name: str) -> None:
    fill(proxy_rs, db_name)
    with pymongo.MongoClient[dict[str, object]](f"mongodb://{proxy_rs.address},{other.address}/") as client:
        points = client[db_name].points
        assert [len(list(points.find({}, batch_size=100))) for _ in range(10)] == [1_000] * 10
        assert client.topology_description.topology_type_name == "Sharded"


def test_the_mode_for_load_balancers_is_not_supported(proxy_rs: ProxyProcess) -> None:
    with (
        pymongo.MongoClient[dict[str, object]](f"{proxy_rs.uri}?loadBalanced=true") as client,
        pytest.raises(ConfigurationError, match="the server does not support this mode"),
    ):
        client.admin.command("ping")
