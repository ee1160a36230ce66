"""Limits of databases: commands at once, and measurements per second."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import bson
import pymongo
import pytest
from pymongo.errors import OperationFailure

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.raw_wire import RawClient, command

LABELS = ["SystemOverloadedError", "RetryableError", "NoWritesPerformed"]
SETTINGS = """
[database_limits.few]
max_commands = 3
max_waiting = 4
[database_limits.brief]
max_commands = 1
max_wait_ms = 300
[database_limits.rated]
max_measurements_per_second = 200
max_wait_ms = 30_000
[database_limits.strict]
max_measurements_per_second = 100
max_wait_ms = 200
"""
START = datetime(2024, 5, 18, tzinfo=UTC)


@pytest.fixture(scope="module")
def limited(mongod: MongodProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    folder = tmp_path_factory.mktemp("limited")
    (folder / "tsproxy.toml").write_text(SETTINGS)
    process = ProxyProcess(folder, mongod.uri, flags=["--config", str(folder / "tsproxy.toml")]).start()
    try:
        yield process
    finally:
        process.stop()
        for name in ("few", "brief", "rated", "strict", "free"):
            mongod.shared_client.drop_database(name)


def shown(proxy: ProxyProcess, name: str, database: str) -> float:
    return proxy.metrics().get(f'tsproxy_limited_{name}{{kind="database",name="{database}"}}', 0.0)


def refusals(proxy: ProxyProcess, limit: str, database: str) -> float:
    return proxy.metrics()[f'tsproxy_limit_refusals_total{{kind="database",limit="{limit}",name="{database}"}}']


def one_document(mongod: MongodProcess, database: str) -> None:
    """What ``sleeping`` reads."""
    mongod.shared_client[database].one.replace_one({"_id": 1}, {}, upsert=True)


def sleeping(database: str, milliseconds: int, comment: str) -> dict[str, Any]:
    where = {"$where": f"sleep({milliseconds}); return true"}
    return {"find": "one", "filter": where, "comment": comment, "$db": database}


class Watch:
    """The most commands with a comment that the server has run at once."""

    def __init__(self, mongod: MongodProcess, comment: str) -> None:
        self.most = 0
        self._mongod = mongod
        self._comment = comment
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        query = [{"$currentOp": {}}, {"$match": {"command.comment": self._comment, "active": True}}]
        while not self._done.is_set():
            self.most = max(self.most, len(list(self._mongod.shared_client.admin.aggregate(query))))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def test_exactly_as_many_commands_as_allowed_run_at_the_backend(mongod: MongodProcess, limited: ProxyProcess) -> None:
    one_document(mongod, "few")
    one_document(mongod, "free")
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(limited.port)) for _ in range(12)]
        watch = stack.enter_context(Watch(mongod, "exactly"))
        free = stack.enter_context(limited.client())
        free.free.one.find_one()
        with ThreadPoolExecutor(12) as pool:
            asked = [pool.submit(client.run, sleeping("few", 400, "exactly")) for client in clients]
            limited.wait_until(lambda: refusals(limited, "commands", "few") == 5)
            assert shown(limited, "commands", "few") == 3
            assert shown(limited, "commands_waiting", "few") == 4
            times = []
            for _ in range(50):
                since = time.perf_counter()
                free.free.one.find_one()
                times.append(time.perf_counter() - since)
            replies = [each.result() for each in asked]
    assert watch.most == 3
    assert sorted(times)[25] < 0.3, "commands of the other database wait 0.4 s and more"
    refused = [reply for reply in replies if not reply["ok"]]
    assert len(refused) == 5
    for reply in refused:
        assert (reply["code"], reply["codeName"]) == (462, "IngressRequestRateLimitExceeded")
        assert reply["errorLabels"] == LABELS
        assert "few" in reply["errmsg"]
    assert shown(limited, "commands", "few") == shown(limited, "commands_waiting", "few") == 0


def test_a_wait_is_limited(mongod: MongodProcess, limited: ProxyProcess) -> None:
    one_document(mongod, "brief")
    with RawClient(limited.port) as first, RawClient(limited.port) as second:
        first.send(command(sleeping("brief", 1_500, "brief")))
        limited.wait_until(lambda: shown(limited, "commands", "brief") == 1)
        since = time.perf_counter()
        reply = second.run({"find": "one", "$db": "brief"})
        assert 0.29 < time.perf_counter() - since < 1.2
        assert reply["code"] == 462
        assert second.run({"ping": 1, "$db": "brief"})["ok"] == 1.0
        (slept,) = first.documents(1)
        assert slept["ok"] == 1.0
        assert second.run({"find": "one", "$db": "brief"})["ok"] == 1.0


def test_drivers_that_know_the_labels_try_again(mongod: MongodProcess, limited: ProxyProcess) -> None:
    """PyMongo waits a moment and repeats a refused command, also one that it would not repeat otherwise."""
    one_document(mongod, "brief")
    with RawClient(limited.port) as first, limited.client() as client:
        client.free.one.find_one()
        first.send(command(sleeping("brief", 400, "again")))
        limited.wait_until(lambda: shown(limited, "commands", "brief") == 1)
        before = refusals(limited, "commands", "brief")
        assert client.brief.one.update_many({}, {"$set": {"again": True}}).matched_count == 1
        assert refusals(limited, "commands", "brief") > before


def test_limits_apply_when_a_pause_ends(mongod: MongodProcess, limited: ProxyProcess) -> None:
    """Held commands take no place; then as many run and wait as without the pause."""
    one_document(mongod, "few")
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(limited.port)) for _ in range(9)]
        watch = stack.enter_context(Watch(mongod, "paused"))
        administrator = stack.enter_context(limited.client())
        administrator.admin.command({"tsproxy": "pause"})
        try:
            for client in clients:
                client.send(command(sleeping("few", 200, "paused")))
            limited.wait_until(lambda: administrator.admin.command({"tsproxy": "status"})["held"] == 9)
            assert shown(limited, "commands", "few") == shown(limited, "commands_waiting", "few") == 0
        finally:
            administrator.admin.command({"tsproxy": "resume"})
        replies = [reply for client in clients for reply in client.documents(1)]
    assert watch.most == 3
    assert [reply.get("code") for reply in replies if not reply["ok"]] == [462, 462]


def test_connections_that_end_give_their_places_back(mongod: MongodProcess, limited: ProxyProcess) -> None:
    one_document(mongod, "few")
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(limited.port)) for _ in range(6)]
        for client in clients:
            client.send(command(sleeping("few", 5_000, "leave")))
        limited.wait_until(lambda: shown(limited, "commands_waiting", "few") == 3)
        for client in clients:
            client.socket.close()
        limited.wait_until(lambda: shown(limited, "commands", "few") == 0)
        assert shown(limited, "commands_waiting", "few") == 0
        since = time.perf_counter()
        assert stack.enter_context(RawClient(limited.port)).run({"find": "one", "$db": "few"})["ok"] == 1.0
        assert time.perf_counter() - since < 4.5


def test_time_in_the_queue_is_in_the_slow_log(mongod: MongodProcess, limited: ProxyProcess) -> None:
    one_document(mongod, "few")
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(limited.port)) for _ in range(4)]
        for number, client in enumerate(clients):
            client.send(command(sleeping("few", 2_500, f"queued {number}")))
            limited.wait_until(
                lambda number=number: (
                    shown(limited, "commands", "few") + shown(limited, "commands_waiting", "few") == number + 1
                )
            )
        for client in clients:
            list(client.documents(1))
    limited.wait_until(lambda: "queued 3" in limited.log)
    (line,) = [line for line in limited.log.splitlines() if "queued 3" in line]
    assert "queue_ms=" in line
    assert not any("queue_ms=" in line for line in limited.log.splitlines() if "queued 0" in line)


def row(number: int) -> dict[str, Any]:
    return {"t": START + timedelta(seconds=number), "m": 1, "n": number}


def test_measurements_per_second(mongod: MongodProcess, limited: ProxyProcess) -> None:
    with limited.client() as one, limited.client() as other:
        for name in ("rated", "free"):
            one[name].create_collection("rows", timeseries={"timeField": "t", "metaField": "m"})
        one.rated.rows.insert_one(row(-1))
        since = time.perf_counter()

        def write(client: pymongo.MongoClient[dict[str, Any]], numbers: range) -> None:
            for number in numbers:
                client.rated.rows.insert_one(row(number))

        with ThreadPoolExecutor(2) as pool:
            writers = [pool.submit(write, one, range(300)), pool.submit(write, other, range(300, 600))]
            free_since = time.perf_counter()
            for number in range(100):
                one.free.rows.insert_one(row(number))
            free_seconds = time.perf_counter() - free_since
            for writer in writers:
                writer.result()
        seconds = time.perf_counter() - since
    # 200 at once, 400 at 200 a second. A slow machine needs longer for all, and three times as long for these.
    assert 1.9 < seconds < 8 + 6 * free_seconds
    assert free_seconds < max(1.9, seconds / 2)
    assert mongod.shared_client.rated.rows.count_documents({}) == 601
    assert shown(limited, "inserts_waiting", "rated") == 0


def test_inserts_that_would_wait_too_long_are_refused_and_not_stored(
    mongod: MongodProcess, limited: ProxyProcess
) -> None:
    with limited.client() as client, RawClient(limited.port) as raw:
        client.strict.create_collection("rows", timeseries={"timeField": "t", "metaField": "m"})
        client.strict.rows.insert_many([row(number) for number in range(1_000)])
        for _ in range(2):
            since = time.perf_counter()
            reply = raw.run({"insert": "rows", "documents": [row(5_000)], "$db": "strict"})
            assert 0.19 < time.perf_counter() - since < 2
            assert (reply["ok"], reply["code"], reply["errorLabels"]) == (0.0, 462, LABELS)
        with pytest.raises(OperationFailure) as raised:
            client.strict.rows.insert_one(row(6_000))
        assert raised.value.code == 462
        assert client.strict.rows.count_documents({}) == 1_000
        assert refusals(limited, "measurements", "strict") >= 3


def test_transactions_end_although_all_places_are_taken(
    replica_set: MongodProcess, tmp_path_factory: pytest.TempPathFactory, db_name: str
) -> None:
    """A command waits for a lock of a transaction, whose commands would wait for that one's place."""
    limits = f'{{"{db_name}": {{"max_commands": 1}}}}'
    flags = ["--database-limits", limits]
    process = ProxyProcess(tmp_path_factory.mktemp("transactions"), replica_set.uri, flags=flags).start()
    try:
        replica_set.shared_client[db_name].rows.insert_one({"_id": 1, "n": 0})
        with process.client() as client, process.client() as other, client.start_session() as session:
            rows = client[db_name].rows
            session.start_transaction()
            rows.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
            with ThreadPoolExecutor(1) as pool:
                waits = pool.submit(other[db_name].rows.update_one, {"_id": 1}, {"$inc": {"n": 1}})
                process.wait_until(lambda: shown(process, "commands", db_name) == 1)
                rows.update_one({"_id": 1}, {"$inc": {"n": 1}}, session=session)
                session.commit_transaction()
                assert waits.result(timeout=20).modified_count == 1
            assert rows.find_one() == {"_id": 1, "n": 3}
    finally:
        process.stop()


def test_limits_cost_nothing_when_there_are_none(mongod: MongodProcess, proxy: ProxyProcess) -> None:
    with proxy.client() as client:
        client.free.one.find_one()
    assert not any(name.startswith("tsproxy_limited") for name in proxy.metrics())


def test_the_documents_of_a_batch_are_counted(limited: ProxyProcess, mongod: MongodProcess) -> None:
    """One insert of many measurements owes them all, whatever recognises it."""
    with limited.client() as client:
        client.rated.drop_collection("batches")
        client.rated.create_collection("batches", timeseries={"timeField": "t", "metaField": "m"})
        since = time.perf_counter()
        for batch in range(4):
            client.rated.batches.insert_many([row(batch * 200 + number) for number in range(200)])
        assert time.perf_counter() - since > 1.9
        assert bson.encode(client.rated.batches.find_one() or {})
