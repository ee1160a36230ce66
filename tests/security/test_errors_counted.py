"""What clients are refused is counted by class, whichever way the command goes; and how buckets are compressed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.errors import PyMongoError

from tests.support.access import PASSWORD, GuardedMongod
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, tsproxy

Client = pymongo.MongoClient[dict[str, Any]]
AT = dt.datetime(2024, 5, 18, tzinfo=dt.UTC)


@pytest.fixture(params=["mongod", "replica_set"])
def counting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProxyProcess]:
    backend: MongodProcess = request.getfixturevalue(request.param)
    process = ProxyProcess(tmp_path, backend.uri).start()
    try:
        yield process
    finally:
        process.stop()


def counted(proxy: ProxyProcess) -> dict[tuple[str, str, str], float]:
    """Errors that are not zero by command, way and class."""
    found = {}
    for name, value in proxy.metrics().items():
        if name.startswith("tsproxy_request_errors_total{") and value:
            labels = dict(each.split("=") for each in name[name.index("{") + 1 : -1].split(","))
            key = tuple(labels[label].strip('"') for label in ("command", "way", "class"))
            found[key] = value
    return found  # type: ignore[return-value]


def refused(work: Callable[[], object]) -> None:
    with pytest.raises(PyMongoError):
        work()


def test_refusals_of_each_way_and_class(counting: ProxyProcess, db_name: str) -> None:
    with counting.client() as client:
        database = client[db_name]
        database.create_collection("ts", timeseries={"timeField": "t"})
        database.plain.insert_one({"_id": 1})
        before = counted(counting)
        for number in range(3):  # the second and third are recognised
            refused(lambda: database.plain.insert_one({"_id": 1}))
            refused(lambda: database.plain.insert_many([{"_id": 1}, {"_id": 1}], ordered=False))
            refused(lambda: list(database.plain.find({"$nonsense": 1})))
            refused(lambda: database.command("nonsense"))
            refused(lambda: database.ts.insert_one({"no": "time"}))
            refused(lambda: list(database.ts.find({"$nonsense": 1})))
            refused(lambda: list(database.ts.aggregate([{"$nonsense": 1}])))
            refused(lambda: database.plain.update_one({"_id": 1}, {"$nonsense": 1}))
            refused(lambda: database.command("create", "plain"))
            refused(lambda: list(database.plain.find({"$where": "sleep(200) || true"}, max_time_ms=20)))
            # What succeeds, also with rows that look like errors, is not counted.
            database.plain.replace_one({"_id": 2}, {"_id": 2, "ok": 0.0, "code": 13}, upsert=True)
            assert len(list(database.plain.find({"_id": 2}))) == 1
            database.ts.insert_one({"t": AT, "code": 5, "ok": 0, "_id": number})
            assert database.ts.count_documents({"code": 5}) == number + 1
        assert before == {}
        found = counted(counting)
    assert found == {
        ("insert", "relay", "duplicate_key"): 6,
        ("find", "relay", "invalid_command"): 3,
        ("find", "relay", "interrupted"): 3,
        ("other", "relay", "invalid_command"): 3,
        ("insert", "ingest", "invalid_command"): 3,
        ("find", "translate", "invalid_command"): 3,
        ("aggregate", "translate", "invalid_command"): 3,
        ("update", "relay", "invalid_command"): 3,
        ("create", "relay", "invalid_command"): 3,
    }
    metrics = counting.metrics()
    errors = sum(value for name, value in metrics.items() if 'outcome="error"' in name)
    assert errors == sum(found.values())


def test_compressing_clients_and_large_replies(counting: ProxyProcess, db_name: str) -> None:
    with counting.client(compressors="zlib") as client:
        plain = client[db_name].plain
        plain.insert_many([{"_id": number, "x": "y" * 10_000} for number in range(300)])
        for _ in range(2):
            refused(lambda: plain.insert_one({"_id": 1}))
            assert len(list(plain.find(batch_size=250))) == 300
        assert counted(counting) == {("insert", "relay", "duplicate_key"): 2}


def test_logins_and_rights(guarded: GuardedMongod, tmp_path: Path, db_name: str) -> None:
    guarded.create_user(db_name, "reader", ["read"])
    proxy = ProxyProcess(tmp_path, guarded.account_uri).start()
    try:
        with proxy.client(username="reader", password="wrong", authSource=db_name) as stranger:
            refused(stranger[db_name].c.find_one)
        with proxy.client() as nobody:
            refused(nobody[db_name].c.find_one)
        with proxy.client(username="reader", password=PASSWORD, authSource=db_name) as reader:
            assert reader[db_name].c.find_one() is None
            refused(lambda: reader[db_name].c.insert_one({}))
        found = counted(proxy)
        assert found.pop(("find", "relay", "authorisation")) == 1
        assert found.pop(("insert", "relay", "authorisation")) == 1
        assert "authentication" in {key[2] for key in found if key[0] in ("hello", "saslStart", "saslContinue")}
        assert {key[2] for key in found} <= {"authentication", "authorisation"}
    finally:
        proxy.stop()
        guarded.shared_client[db_name].command("dropAllUsersFromDatabase")


def test_compression_is_shown(
    mongod: MongodProcess, tmp_path: Path, db_name: str, mongod_version: tuple[int, ...]
) -> None:
    flags = ["--timeseries-bucket-max-count", "50", "--write-strategy", "in_place"]
    proxy = ProxyProcess(tmp_path, mongod.uri, flags=flags).start()
    try:
        with proxy.client() as client:
            series = client[db_name].create_collection("ts", timeseries={"timeField": "t"})
            series.insert_many([{"t": AT + dt.timedelta(seconds=n), "v": 1} for n in range(120)])
            # A server before 6.0 could not read compressed buckets.
            full = 2 if mongod_version >= (6,) else 0
            proxy.wait_until(lambda: proxy.metrics()["tsproxy_compressed_buckets_total"] == full)
        shown = proxy.metrics()
        assert shown["process_resident_memory_bytes"] > 1_000_000
        assert shown["process_cpu_seconds_total"] > 0
        if not full:
            assert shown["tsproxy_compression_seconds_total"] == 0
            return
        before = shown['tsproxy_compression_bytes_total{form="before"}']
        assert 0 < shown['tsproxy_compression_bytes_total{form="after"}'] < before / 2
        assert shown["tsproxy_compression_seconds_total"] > 0
        assert shown['tsproxy_uncompressed_buckets_total{reason="too_large"}'] == 0
    finally:
        proxy.stop()


@pytest.mark.parametrize("mechanism", ["PLAIN", "GSSAPI", "MONGODB-AWS", "MONGODB-OIDC"])
@pytest.mark.parametrize("scheme", ["mongodb", "mongodb+srv"])
def test_a_login_that_the_proxy_does_not_support_is_a_setting_to_fix(mechanism: str, scheme: str) -> None:
    uri = f"{scheme}://user:secret@db.example.invalid/?authMechanism={mechanism}"
    ended = tsproxy("serve", "--backend", uri, "--listen", "127.0.0.1:0", "--status-listen", "")
    assert ended.returncode == 2
    assert f"authMechanism={mechanism} is not supported for the proxy's own account" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "secret" not in ended.stderr
