"""``tsproxy bench`` as a program, with a real proxy and the server behind it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port
from tests.support.proxy import ProxyProcess, program, tsproxy

BRIEF = ("--allow-writes", "--seconds", "0.4", "--rounds", "2", "--connections", "3", "--series", "6")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return tsproxy("bench", *arguments)


def both(mongod: MongodProcess, proxy: ProxyProcess, db_name: str) -> tuple[str, ...]:
    return ("--proxy", proxy.uri, "--direct", mongod.uri, "--database", db_name)


def test_both_sides_are_compared_and_nothing_is_left(
    mongod: MongodProcess, proxy: ProxyProcess, db_name: str, tmp_path: Path
) -> None:
    path = tmp_path / "figures.json"
    options = ("--readers", "1", "--batch-rows", "2", "--json", str(path))
    ended = bench(*both(mongod, proxy, db_name), *BRIEF, *options)
    assert ended.returncode == 0, ended.stderr
    assert "\r" not in ended.stderr, "no bar without a terminal"
    assert "3 connections, 2 rows in a command, 6 series, shape iot" in ended.stdout
    assert ended.stdout.count("all acknowledged rows are stored with their values") == 2
    assert "proxy / direct: " in ended.stdout
    said = json.loads(path.read_text())
    for side in said["sides"].values():
        assert side["stored_rows"] == side["acknowledged_rows"] > side["rows"] > 0
        assert len(side["rounds"]) == 2
        assert side["errors"] == {}
        assert side["reads"] > 0
        assert side["insert_ms"]["p50"] <= side["insert_ms"]["p95"] <= side["insert_ms"]["p99"]
    assert said["ratio"]["least"] <= said["ratio"]["median"] <= said["ratio"]["greatest"]
    assert db_name not in mongod.shared_client.list_database_names()


def test_a_template_and_an_existing_database(
    mongod: MongodProcess, proxy: ProxyProcess, db_name: str, tmp_path: Path
) -> None:
    mongod.shared_client[db_name].mine.insert_one({})
    template = tmp_path / "mine.json"
    template.write_text('{"when": "$time", "source": {"unit": "$series"}, "values": ["$number", "$number"]}')
    arguments = (*both(mongod, proxy, db_name), *BRIEF, "--shape", str(template), "--no-warm-up")
    refused = bench(*arguments)
    assert refused.returncode == 2
    assert "--into-existing" in refused.stderr
    ended = bench(*arguments, "--into-existing")
    assert ended.returncode == 0, ended.stderr
    assert "shape mine.json" in ended.stdout
    left = [name for name in mongod.shared_client[db_name].list_collection_names() if not name.startswith("system.")]
    assert left == ["mine"]


def start(*arguments: str) -> subprocess.Popen[str]:
    """In a group of its own, as a terminal starts it, but with SIGINT ignored, as a script starts background jobs."""
    command, environment = program()
    return subprocess.Popen(
        ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command, "bench", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **environment}, start_new_session=True,
    )  # fmt: skip


def wait_for_rows(database: Any, child: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while child.poll() is None and time.monotonic() < deadline:
        names = [name for name in database.list_collection_names() if name.startswith(("proxy_", "direct_"))]
        if any(database[name].find_one() for name in names):
            return
    pytest.fail("no rows have come")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_made_is_dropped_when_it_is_stopped(
    mongod: MongodProcess, proxy: ProxyProcess, db_name: str, number: signal.Signals
) -> None:
    child = start(*both(mongod, proxy, db_name), "--allow-writes", "--seconds", "60")
    try:
        wait_for_rows(mongod.shared_client[db_name], child)
        # Ctrl-C reaches every process of the group.
        os.killpg(child.pid, number) if number is signal.SIGINT else child.send_signal(number)
        out, err = child.communicate(timeout=30)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
    assert child.returncode == 1
    assert err == "tsproxy: stopped\n"
    assert out == ""
    assert db_name not in mongod.shared_client.list_database_names()


def test_a_server_that_ends_is_told(mongod: MongodProcess, db_name: str, tmp_path: Path) -> None:
    """What cannot be dropped is named."""
    proxy = ProxyProcess(tmp_path, mongod.uri).start()
    options = "?serverSelectionTimeoutMS=200&socketTimeoutMS=500"
    child = start(
        "--proxy", proxy.uri + options, "--direct", mongod.uri, "--database", db_name, "--allow-writes",
        "--seconds", "0.3", "--rounds", "500", "--connections", "2", "--series", "2", "--no-warm-up",
    )  # fmt: skip
    try:
        wait_for_rows(mongod.shared_client[db_name], child)
    finally:
        proxy.stop()
    out, err = child.communicate(timeout=40)
    assert child.returncode == 1, out
    assert "--proxy: no row was stored" in err or "--proxy: cannot" in err
    assert "drop it yourself" in err


@pytest.mark.parametrize("wrong", ["proxy", "direct"])
def test_wrong_connection_strings(mongod: MongodProcess, proxy: ProxyProcess, db_name: str, wrong: str) -> None:
    uris = {"proxy": proxy.uri, "direct": mongod.uri}
    uris[wrong] = f"mongodb://me:hidden@{LOOPBACK}:{free_port()}/?serverSelectionTimeoutMS=100"
    ended = bench("--proxy", uris["proxy"], "--direct", uris["direct"], "--database", db_name, *BRIEF)
    assert ended.returncode == 1
    assert f"--{wrong}: cannot reach the server" in ended.stderr
    assert "hidden" not in ended.stderr
    assert db_name not in mongod.shared_client.list_database_names()
