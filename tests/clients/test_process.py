"""``tsproxy`` as a program: how it starts, what it says, how it ends and with which code."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import signal
from pathlib import Path

import pymongo
import pytest
from msgspec import inspect as types

from proxy.process.embedded import STOP_SECONDS, is_alive
from proxy.process.exit_codes import ExitCode
from proxy.process.last_resort import CLOSE_SECONDS
from proxy.settings.table import ROWS, Settings
from tests.support.mongod import MongodProcess
from tests.support.ports import accepts, free_port
from tests.support.proxy import ProxyProcess, program, tsproxy

EMBEDDED = {"TSPROXY_EMBEDDED_CACHE_SIZE_GB": "0.25"}


def embedded_proxy(directory: Path, **environment: str) -> ProxyProcess:
    flags = ["--embedded-data-directory", str(directory / "data")]
    return ProxyProcess(directory, None, flags=flags, environment={**EMBEDDED, **environment})


def mongod_pid(proxy: ProxyProcess) -> str:
    """The embedded mongod's process id, from mongod itself."""
    with proxy.client() as client:
        return str(client.admin.command("serverStatus")["pid"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_clean_stop_ends_with_0_and_leaves_clean_files(tmp_path: Path, number: signal.Signals) -> None:
    proxy = embedded_proxy(tmp_path).start()
    pid = mongod_pid(proxy)
    with proxy.client() as client:
        client.db.c.insert_one({"_id": 1})
    proxy.signal(number)
    assert proxy.wait() == 0
    assert not is_alive(pid)
    assert (tmp_path / "data" / "mongod.lock").read_bytes() == b""
    proxy.start()
    with proxy.client() as client:
        assert client.db.c.find_one() == {"_id": 1}
    proxy.stop()


def test_killed_proxy_leaves_no_mongod_behind(tmp_path: Path) -> None:
    proxy = embedded_proxy(tmp_path).start()
    pid = mongod_pid(proxy)
    proxy.kill()
    proxy.start()  # waits for the old mongod's end before it starts its own
    assert not is_alive(pid)
    proxy.stop()


def test_second_proxy_on_the_same_data_is_told_so(tmp_path: Path) -> None:
    proxy = embedded_proxy(tmp_path).start()
    second = tsproxy("serve", "--listen", f"127.0.0.1:{free_port()}", "--status-listen", "", *proxy.flags, **EMBEDDED)
    assert second.returncode == 1
    assert "is in use by another tsproxy" in second.stderr
    assert proxy.status("/readyz")[0] == 200
    proxy.stop()


def test_mongod_that_dies_is_told_by_readyz_and_started_again(tmp_path: Path) -> None:
    proxy = embedded_proxy(tmp_path).start()
    proxy.wait_until(lambda: proxy.status("/readyz")[0] == 200)
    os.kill(int(mongod_pid(proxy)), signal.SIGKILL)
    proxy.wait_until(lambda: proxy.status("/readyz")[0] == 503)
    assert proxy.status("/livez")[0] == 200
    proxy.wait_until(lambda: proxy.status("/readyz")[0] == 200)
    assert "tsproxy_embedded_restarts_total 1.0" in proxy.status("/metrics")[1]
    with proxy.client() as client:
        client.db.c.insert_one({"_id": 1})
    proxy.stop()


def test_it_says_where_to_connect(tmp_path: Path) -> None:
    proxy = embedded_proxy(tmp_path).start()
    proxy.wait_until(lambda: "Ctrl-C" in proxy.log)
    assert f'mongosh "mongodb://127.0.0.1:{proxy.port}/' in proxy.log
    proxy.stop()


@pytest.mark.parametrize(
    ("where", "workers"),
    [(">/dev/full 2>/dev/full", "1"), ("<&- >&- 2>&-", "1"), ("> >(true) 2>&1", "1"), (">/dev/full", "2")],
)
def test_it_serves_where_nothing_can_be_printed(
    mongod: MongodProcess, tmp_path: Path, where: str, workers: str
) -> None:
    proxy = ProxyProcess(tmp_path, mongod.uri, flags=["--workers", workers])
    proxy.spawn(["/bin/bash", "-c", f'exec "$@" {where}', "bash", *proxy.command()], program()[1])
    proxy.wait_until(lambda: accepts(proxy.status_port) and proxy.status("/readyz")[0] == 200)
    with proxy.client() as client:
        assert client.admin.command("ping")["ok"] == 1
    assert proxy.stop() == 0


def test_with_a_backend_no_mongod_is_started(mongod: MongodProcess, tmp_path: Path) -> None:
    proxy = ProxyProcess(tmp_path, mongod.uri, environment={"PATH": "/nonexistent"}).start()
    with proxy.client() as client:
        assert client.admin.command("serverStatus")["pid"] == mongod.pid
    proxy.stop()
    assert proxy.returncode == 0
    assert mongod.running


def test_unreachable_backend_ends_with_1_and_names_host_and_reason() -> None:
    port = free_port()
    uri = f"mongodb://user:secret@127.0.0.1:{port}/"
    flags = ["--status-listen", "", "--server-selection-timeout-ms", "300", "--fail-fast", "true"]
    done = tsproxy("serve", "--backend", uri, *flags)
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Connection refused" in done.stderr
    assert "secret" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("flag", "other"), [("--listen", "--status-listen"), ("--status-listen", "--listen")])
def test_address_in_use_is_told_before_a_mongod_is_started(
    mongod: MongodProcess, tmp_path: Path, flag: str, other: str
) -> None:
    addresses = [flag, mongod.address, other, f"127.0.0.1:{free_port()}"]
    done = tsproxy("serve", "--embedded-data-directory", str(tmp_path / "data"), *addresses)
    assert done.returncode == 1
    assert f"{flag[2:].replace('-', '_')} = '{mongod.address}'" in done.stderr
    assert "in use" in done.stderr
    assert not (tmp_path / "data").exists()


def test_fatal_errors_are_json_where_logs_are() -> None:
    for arguments, code in ((["--max-connections", "0"], 2), (["--backend", "mongodb://127.0.0.1:1/"], 1)):
        flags = ["--fail-fast", "true", "--server-selection-timeout-ms", "200", "--status-listen", ""]
        done = tsproxy("serve", "--listen", f"127.0.0.1:{free_port()}", *flags, *arguments, TSPROXY_LOG_FORMAT="json")
        assert done.returncode == code
        assert done.stdout == ""
        last = json.loads(done.stderr.splitlines()[-1])
        assert (last["level"], last["exit_code"]) == ("critical", code)


def test_machines_get_no_lines_for_the_terminal(mongod: MongodProcess, tmp_path: Path) -> None:
    proxy = ProxyProcess(tmp_path, mongod.uri, flags=["--log-format", "json"]).start()
    proxy.wait_until(lambda: '"ready"' in proxy.log)
    proxy.stop()
    assert [json.loads(line)["event"] for line in proxy.log.splitlines()][-2:] == ["stopping", "stopped"]


def test_systemd_restarts_only_what_may_pass() -> None:
    unit = (Path(__file__).parents[2] / "deploy" / "tsproxy.service").read_text()
    prevented = re.search(r"^RestartPreventExitStatus=(.*)$", unit, re.MULTILINE)
    assert prevented is not None
    assert {int(code) for code in prevented[1].split()} == {ExitCode.FIX_SETTINGS, ExitCode.FIX_BACKEND}


def test_systemd_reloads_with_the_signal_for_it() -> None:
    unit = (Path(__file__).parents[2] / "deploy" / "tsproxy.service").read_text()
    assert re.findall(r"^ExecReload=(.*)$", unit, re.MULTILINE)[-1] == "/bin/kill -HUP $MAINPID"


def test_systemd_waits_for_the_longest_stop() -> None:
    unit = (Path(__file__).parents[2] / "deploy" / "tsproxy.service").read_text()
    allowed = re.search(r"^TimeoutStopSec=(\d+)s$", unit, re.MULTILINE)
    assert allowed is not None
    assert int(allowed[1]) > Settings().shutdown_grace_seconds + STOP_SECONDS + CLOSE_SECONDS


@pytest.mark.parametrize("arguments", [["--max-connections", "0"], ["--no-such-flag"], ["--config", "/no/such/file"]])
def test_bad_configuration_ends_with_2(arguments: list[str]) -> None:
    done = tsproxy("serve", *arguments)
    assert done.returncode == 2
    assert arguments[-1] in done.stderr


def test_stop_during_the_start_is_clean(tmp_path: Path) -> None:
    proxy = embedded_proxy(tmp_path).start(wait=False)
    proxy.wait_until(lambda: accepts(proxy.status_port))
    proxy.signal(signal.SIGTERM)
    assert proxy.wait() == 0
    proxy.start()
    with pymongo.MongoClient[dict[str, object]](proxy.uri) as client:
        assert client.admin.command("ping")["ok"] == 1
    proxy.stop()


def test_health_command_follows_readyz(mongod: MongodProcess, tmp_path: Path) -> None:
    proxy = ProxyProcess(tmp_path, mongod.uri).start()
    status = f"127.0.0.1:{proxy.status_port}"
    proxy.wait_until(lambda: proxy.status("/readyz")[0] == 200)
    assert tsproxy("health", "--status-listen", status).returncode == 0
    proxy.stop()
    done = tsproxy("health", TSPROXY_STATUS_LISTEN=status)
    assert done.returncode == 1
    assert "refused" in done.stderr


def test_metrics_tell_of_requests_and_connections(proxy: ProxyProcess, db_name: str) -> None:
    with proxy.client() as client:
        client[db_name].create_collection("c", timeseries={"timeField": "t"})
        client[db_name].command("ping")
        metrics = proxy.metrics()
    assert metrics["tsproxy_connections_open"] >= 1
    assert metrics["tsproxy_backend_up"] == 1
    assert metrics['tsproxy_requests_total{command="create",outcome="ok",way="translate"}'] >= 1
    assert metrics["tsproxy_received_bytes_total"] > 0
    assert metrics["tsproxy_sent_bytes_total"] > 0


def largest() -> dict[str, float]:
    """Every number at its upper bound."""
    bounds = {}
    for row in ROWS.values():
        kind = types.type_info(row.type)
        for each in kind.types if isinstance(kind, types.UnionType) else (kind,):
            if isinstance(each, types.IntType | types.FloatType) and each.le is not None:
                bounds[row.name] = each.le
    return bounds


@pytest.mark.parametrize("workers", [1, 2])
def test_largest_numbers_that_settings_allow(tmp_path: Path, mongod: MongodProcess, db_name: str, workers: int) -> None:
    numbers = largest() | {"workers": workers, "trace_ratio": 1.0, "commit_linger_ms": 1.0}
    (tmp_path / "t.toml").write_text("".join(f"{name} = {value}\n" for name, value in numbers.items()))
    proxy = ProxyProcess(tmp_path, mongod.uri, flags=["--config", str(tmp_path / "t.toml")]).start()
    with proxy.client(timeoutMS=20_000) as client:
        db = client[db_name]
        db.create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
        for second in range(3):
            db.c.insert_many([{"t": dt.datetime(2024, 1, 1, 0, 0, second), "m": series} for series in range(3)])  # noqa: DTZ001
        assert db.c.count_documents({"m": 1}) == 3
        shown = client.admin.command({"tsproxy": "config"})["settings"]
        assert shown.keys() >= numbers.keys()
        assert client.admin.command({"tsproxy": "reload"})["changed"] == {}
        client.drop_database(db_name)
    assert proxy.stop() == 0
