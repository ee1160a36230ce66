"""Limits of users, with real logins."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.errors import OperationFailure, PyMongoError, ServerSelectionTimeoutError

from tests.support.access import PASSWORD, GuardedMongod
from tests.support.logged_in import logged_in
from tests.support.proxy import ProxyProcess

SLEEP = {"$where": "sleep(400); return true"}
SETTINGS = """
[user_limits."ann@admin"]
max_connections = 2
[user_limits."busy@admin"]
max_commands = 2
[user_limits."*"]
max_connections = 50
"""

Client = pymongo.MongoClient[dict[str, Any]]


@pytest.fixture(scope="module")
def limited(guarded: GuardedMongod, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    folder = tmp_path_factory.mktemp("limited")
    (folder / "tsproxy.toml").write_text(SETTINGS)
    for name in ("ann", "bob", "busy"):
        guarded.create_user("admin", name, ["readWriteAnyDatabase"])
    flags = ["--config", str(folder / "tsproxy.toml"), "--status-page", "names"]
    process = ProxyProcess(folder, guarded.account_uri, flags=flags).start()
    try:
        yield process
    finally:
        process.stop()


def client_of(proxy: ProxyProcess, user: str, **options: Any) -> Client:
    # After a refused login, drivers try again for so long, and each time wait for the next heartbeat.
    options = {"serverSelectionTimeoutMS": 3_000, "heartbeatFrequencyMS": 500, **options}
    return proxy.client(username=user, password=PASSWORD, authSource="admin", **options)


def shown(proxy: ProxyProcess, name: str, user: str) -> float:
    return proxy.metrics().get(f'tsproxy_limited_{name}{{kind="user",name="{user}@admin"}}', 0.0)


def test_logins_above_the_limit_are_refused_until_a_connection_ends(limited: ProxyProcess) -> None:
    with ExitStack() as stack:
        anns = [stack.enter_context(client_of(limited, "ann", maxPoolSize=1)) for _ in range(2)]
        for client in anns:
            client.weather.rows.find_one()
        assert shown(limited, "connections", "ann") == 2
        with client_of(limited, "ann", maxPoolSize=1) as third:
            with pytest.raises((OperationFailure, ServerSelectionTimeoutError)) as refused:
                third.weather.rows.find_one()
            for told in ("ann@admin", "'code': 462", "SystemOverloadedError"):
                assert told in str(refused.value)
            with client_of(limited, "bob") as bob:
                bob.weather.rows.find_one()
            assert shown(limited, "connections", "ann") == 2
            anns[0].close()
            limited.wait_until(lambda: shown(limited, "connections", "ann") == 1)
            third.weather.rows.find_one()
            assert shown(limited, "connections", "ann") == 2
    limited.wait_until(lambda: shown(limited, "connections", "ann") == 0)
    refusals = limited.metrics()['tsproxy_limit_refusals_total{kind="user",limit="connections",name="ann@admin"}']
    assert refusals >= 1
    assert limited.metrics()['tsproxy_limited_connections{kind="user",name="*"}'] == 0


async def test_a_refused_login_may_do_nothing_and_a_logout_counts(limited: ProxyProcess) -> None:
    async with logged_in(limited.port, "ann", "admin", "weather") as one:
        assert shown(limited, "connections", "ann") == 1
        assert (await one.run({"find": "rows"}))["ok"] == 1.0
        assert (await one.run({"logout": 1}, "admin"))["ok"] == 1.0
        assert shown(limited, "connections", "ann") == 0
        assert (await one.run({"find": "rows"}))["code"] == 13


def test_a_busy_user_does_not_slow_down_others(limited: ProxyProcess, guarded: GuardedMongod) -> None:
    database = guarded.shared_client.weather
    database.one.replace_one({"_id": 1}, {}, upsert=True)
    most = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        query = [{"$currentOp": {"allUsers": True}}, {"$match": {"command.comment": "busy", "active": True}}]
        while not done.is_set():
            most = max(most, len(list(guarded.shared_client.admin.aggregate(query))))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with client_of(limited, "busy", maxPoolSize=20) as busy, client_of(limited, "bob") as bob:
            bob.weather.one.find_one()
            with ThreadPoolExecutor(8) as pool:
                asked = [pool.submit(busy.weather.one.find_one, SLEEP, comment="busy") for _ in range(8)]
                limited.wait_until(lambda: shown(limited, "commands_waiting", "busy") == 6)
                times = []
                for _ in range(50):
                    since = time.perf_counter()
                    bob.weather.one.find_one()
                    times.append(time.perf_counter() - since)
                assert all(each.result() is not None for each in asked)
    finally:
        done.set()
        watching.join()
    assert most == 2
    assert sorted(times)[25] < 0.1
    assert max(times) < 0.4
    assert shown(limited, "commands", "busy") == shown(limited, "commands_waiting", "busy") == 0


def test_users_are_limited_by_their_database(limited: ProxyProcess, guarded: GuardedMongod) -> None:
    """A user of the same name in another database is another user."""
    guarded.create_user("elsewhere", "ann", [{"role": "readWrite", "db": "elsewhere"}])
    with ExitStack() as stack:
        for _ in range(4):
            client: Client = stack.enter_context(
                limited.client(username="ann", password=PASSWORD, authSource="elsewhere", maxPoolSize=1)
            )
            client.elsewhere.rows.find_one()


def test_a_wrong_password_counts_nothing(limited: ProxyProcess) -> None:
    for _ in range(5):
        with (
            limited.client(username="ann", password="wrong", authSource="admin") as client,
            pytest.raises(PyMongoError),
        ):
            client.weather.rows.find_one()
    assert shown(limited, "connections", "ann") == 0


def test_the_tables_are_reloaded(guarded: GuardedMongod, tmp_path: Path) -> None:
    import signal

    file = tmp_path / "tsproxy.toml"
    file.touch()
    guarded.create_user("admin", "carol", ["readWriteAnyDatabase"])
    process = ProxyProcess(tmp_path, guarded.account_uri, flags=["--config", str(file)]).start()
    try:
        with client_of(process, "carol", maxPoolSize=1) as first:
            first.weather.rows.find_one()
            file.write_text('[user_limits."carol@admin"]\nmax_connections = 1\n')
            process.signal(signal.SIGHUP)
            process.wait_until(lambda: "settings reloaded" in process.log)
            with client_of(process, "carol", maxPoolSize=1) as second, client_of(process, "carol") as third:
                # Connections from before the reload are not counted.
                second.weather.rows.find_one()
                with pytest.raises((OperationFailure, ServerSelectionTimeoutError)):
                    third.weather.rows.find_one()
    finally:
        process.stop()
