"""The compiled modules: their unit tests pass, since mypyc checks types at run time, and commands pass no others.

Everywhere else unit tests run the source, and only tests that start a proxy run what users install.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.mongod import MongodProcess
from tests.support.proxy import PROGRAM, ProxyProcess, started
from tests.support.raw_wire import RawClient, body, op_msg_bytes, sequence

ROOT = Path(__file__).parent.parent
ROOMS = (
    "catalog",
    "proxy/backend",
    "proxy/clients",
    "proxy/inserts",
    "proxy/readers",
    "proxy/reads",
    "proxy/relay",
    "proxy/request",
    "proxy/upstream",
    "proxy/wire",
    "rewrite",
)
REPLACES_PARTS = (
    "tests/unit/proxy/backend/test_bucket_writes.py::test_a_reply_that_does_not_come_leaves_the_outcome_open",
    "tests/unit/proxy/clients/test_ruled_creation.py",
    "tests/unit/proxy/inserts/test_asked_insert.py",
    "tests/unit/proxy/inserts/test_ingest.py::test_a_bug_is_reported_and_told",
    "tests/unit/proxy/relay/test_plain_relay.py::test_connection_that_ended_just_now_is_told",
    "tests/unit/proxy/request/test_session.py",
)
"""These put something of their own into an object, which compiled objects do not allow or do not call."""
RUN = """
import sys
import pytest
# Before pytest puts the checkout first.
import catalog.catalog, proxy.clients.dispatch, rewrite.plan
assert catalog.catalog.__file__.endswith(".so") and proxy.clients.dispatch.__file__.endswith(".so")
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.timeout(900)
def test_unit_tests_pass_on_the_compiled_modules() -> None:
    paths = [f"tests/unit/{room}" for room in ROOMS]
    others = [f"--deselect={each}" for each in REPLACES_PARTS]
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN, "-q", "-x", "-p", "no:cacheprovider", *others, *paths],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((PROGRAM, str(ROOT)))},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


WATCH = """
import collections, json, os, pathlib, signal, sys

calls = collections.Counter()
program = os.environ["TSPROXY_TEST_WATCHED"]
joins = ("/backend/parts/", "/catalog/kernel/merging.py", "/catalog/bson/raw.py")
joined = ("Pending", "Replacement", "Span")

def seen(frame, event, argument):
    file = frame.f_code.co_filename
    if event != "call":
        return
    if file == "<string>":
        # What dataclasses and named tuples make is not compiled.
        made = frame.f_locals.get("_cls") or type(frame.f_locals.get("self"))
        if made.__module__.partition(".")[0] in ("catalog", "proxy", "rewrite") and made.__name__ not in joined:
            calls[made.__qualname__] += 1
    elif file.startswith(program) and not any(each in file for each in joins):
        calls[frame.f_code.co_qualname] += 1

def switch(*_):
    if sys.getprofile() is None:
        sys.setprofile(seen)
    else:
        sys.setprofile(None)
        told = pathlib.Path(__file__).with_name("calls.new")
        told.write_text(json.dumps(calls))
        calls.clear()
        told.rename(told.with_suffix(".json"))

signal.signal(signal.SIGRTMIN + 1, switch)
"""
"""Counts the calls of interpreted functions from one signal to the next: compiled ones are not seen by a profiler.

Among them are the constructors of dataclasses and named tuples. Parts are joined in the background meanwhile, which is
not counted.
"""
CLIENTS = 32
ROUNDS = 50


@pytest.fixture
def calls_of(mongod: MongodProcess, tmp_path: Path) -> Iterator[Callable[[bytes], dict[str, int]]]:
    """Sends a command many times through many connections at once; returns the calls of interpreted functions."""
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    environment = {"PYTHONPATH": os.pathsep.join((str(tmp_path), PROGRAM)), "TSPROXY_TEST_WATCHED": PROGRAM}
    told = tmp_path / "calls.json"
    with started(ProxyProcess(tmp_path, mongod.uri, environment=environment)) as proxy, ExitStack() as stack:
        clients = [stack.enter_context(RawClient(proxy.port)) for _ in range(CLIENTS)]

        def send(message: bytes, rounds: int) -> None:
            for _ in range(rounds):
                for client in clients:
                    client.send(message)
                for client in clients:
                    (reply,) = client.documents(1)
                    assert reply["ok"] == 1, reply

        def calls(message: bytes) -> dict[str, int]:
            send(message, 3)
            os.kill(proxy.pid, signal.SIGRTMIN + 1)
            send(message, ROUNDS)
            os.kill(proxy.pid, signal.SIGRTMIN + 1)
            proxy.wait_until(told.exists)
            found: dict[str, int] = json.loads(told.read_text())
            told.unlink()
            return found

        yield calls


def test_repeated_commands_pass_compiled_modules_only(
    calls_of: Callable[[bytes], dict[str, int]], mongod: MongodProcess, db_name: str
) -> None:
    with mongod.client() as client:
        client[db_name].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
        client[db_name].plain.insert_one({"_id": 1})
    measurement = {"t": dt.datetime(2024, 5, 1, tzinfo=dt.UTC), "m": 1, "x": 1.5}
    commands = {
        "ping": op_msg_bytes(body({"ping": 1, "$db": "admin"})),
        "find": op_msg_bytes(body({"find": "plain", "filter": {"_id": 1}, "$db": db_name})),
        "find in buckets": op_msg_bytes(body({"find": "ts", "filter": {"m": 1}, "limit": 1, "$db": db_name})),
        "insert": op_msg_bytes(body({"insert": "ts", "$db": db_name}), sequence("documents", measurement)),
    }
    for name, message in commands.items():
        often = {each: count for each, count in calls_of(message).items() if count > CLIENTS * ROUNDS / 2}
        assert not often, f"{name}: {often}"
