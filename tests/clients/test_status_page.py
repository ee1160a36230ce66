"""The status page's document of a real proxy under load: its numbers are those of the metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import OperationFailure

from tests.support.mongod import MongodProcess
from tests.support.ports import accepts
from tests.support.proxy import ProxyProcess, started
from tests.support.steady_load import SteadyLoad

Samples = dict[str, float]


@pytest.fixture(scope="module")
def watched(mongod: MongodProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy that nobody else uses."""
    with started(
        ProxyProcess(tmp_path_factory.mktemp("watched"), mongod.uri, flags=["--slow-command-ms", "0"])
    ) as server:
        yield server


def shown(proxy: ProxyProcess, query: str = "") -> dict[str, Any]:
    status, body = proxy.status(f"/status.json{query}")
    assert status == 200
    document: dict[str, Any] = json.loads(body)
    return document


def settle(proxy: ProxyProcess) -> None:
    """Wait until the points have everything that has happened."""
    number = max((point["number"] for point in shown(proxy)["points"]), default=0)
    proxy.wait_until(lambda: len(shown(proxy, f"?after={number}")["points"]) > 1)


def total(samples: Samples, name: str, *labels: str) -> float:
    """The sum of a metric over all labels, or over those that contain all of these texts."""
    return sum(
        value for key, value in samples.items() if key.partition("{")[0] == name and all(text in key for text in labels)
    )


def test_numbers_agree_with_the_metrics(watched: ProxyProcess, mongod: MongodProcess, db_name: str) -> None:
    with SteadyLoad(watched.client, db_name, writers=3, readers=1) as load:
        watched.wait_until(lambda: len(load.written) > 300)
        with watched.client() as client, suppress(OperationFailure):
            client[db_name].ts.aggregate([{"$nothing": 1}])
    assert load.errors == []
    settle(watched)
    document, samples = shown(watched), watched.metrics()
    totals = document["totals"]
    assert totals["measurements"] == samples["tsproxy_batch_measurements_sum"] == len(load.written)
    assert totals["batches"] == samples["tsproxy_batch_measurements_count"]
    assert totals["commits"] == samples["tsproxy_commit_commands_total"]
    assert totals["bucketsInserted"] == samples["tsproxy_buckets_inserted_total"]
    assert totals["errors"] == total(samples, "tsproxy_requests_total", 'outcome="error"') >= 1
    assert document["gauges"]["openBuckets"] == samples["tsproxy_open_buckets"] > 0
    assert document["recent"]["counts"]["measurements"] == len(load.written), "all of it was in the last five minutes"
    assert sum(point["counts"].get("measurements", 0) for point in document["points"]) == len(load.written)
    inserts = document["recent"]["ways"]["ingest"]
    assert inserts[0] == total(samples, "tsproxy_request_seconds_count", 'way="ingest"')
    assert document["recent"]["rollovers"] == {
        reason: count
        for reason in ("count", "schema_change", "size", "time_forward", "time_backward", "memory", "reopening")
        if (count := samples[f'tsproxy_rollovers_total{{reason="{reason}"}}'])
    }
    assert {"command": "aggregate", "way": "translate", "class": "invalid_command", "count": 1} in document["errors"]


def test_quantiles_lie_between_the_bounds_that_the_metrics_have(watched: ProxyProcess, db_name: str) -> None:
    with SteadyLoad(watched.client, db_name, writers=2, readers=1):
        watched.wait_until(lambda: shown(watched)["now"]["ways"].get("ingest", [0])[0] > 200)
    settle(watched)
    document, samples = shown(watched), watched.metrics()
    count, *quantiles_ms = document["recent"]["ways"]["ingest"]
    for share, found_ms in zip((0.5, 0.95, 0.99), quantiles_ms, strict=True):
        bounds = {
            float(key.split('le="')[1].split('"')[0]): value
            for key, value in samples.items()
            if key.startswith("tsproxy_request_seconds_bucket") and 'way="ingest"' in key
        }
        reached = min(bound for bound, value in bounds.items() if value >= share * count)
        before = max((bound for bound in bounds if bound < reached), default=0.0)
        assert before * 1000 <= found_ms <= reached * 1000


@pytest.fixture
def quiet(mongod: MongodProcess, tmp_path: Path) -> Iterator[ProxyProcess]:
    """One that has described nothing yet: it describes so many commands a second."""
    with started(ProxyProcess(tmp_path, mongod.uri, flags=["--slow-command-ms", "0"])) as server:
        yield server


def test_busiest_collections_and_slow_commands_have_names_here(quiet: ProxyProcess, db_name: str) -> None:
    name = '<img src=x onerror="alert(1)">'
    with quiet.client() as client:
        client[db_name].create_collection(name, timeseries={"timeField": "t"})
        client[db_name][name].insert_many([{"t": datetime.now(UTC), "v": n} for n in range(500)])
    quiet.wait_until(
        lambda: any(each["collection"] == f"{db_name}.{name}" for each in shown(quiet)["collections"]["busiest"])
    )
    slow = shown(quiet)["slow"]
    assert slow["thresholdMs"] == 0
    kinds = [(each["slowest"]["command"], each["slowest"]["namespace"]) for each in slow["commands"]]
    assert ("insert", f"{db_name}.{name}") in kinds
    assert 1 < len(slow["commands"]) <= 12


def test_a_proxy_without_a_backend_has_its_page(tmp_path: Path) -> None:
    proxy = ProxyProcess(tmp_path, "mongodb://127.0.0.1:9/?serverSelectionTimeoutMS=300")
    try:
        proxy.start(wait=False)
        proxy.wait_until(lambda: accepts(proxy.status_port))
        document = shown(proxy)
        assert (document["ready"], document["state"]) == (False, "starting")
        assert proxy.status("/")[0] == 200
    finally:
        proxy.kill()
