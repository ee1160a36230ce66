"""``tsproxy doctor`` as a program: what an operator sees of backends without access control."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any

from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port
from tests.support.proxy import ProxyProcess, tsproxy


def report_of(*arguments: str, code: int, **environment: str) -> dict[str, dict[str, Any]]:
    """The findings by check; the exit code is that of the report."""
    done = tsproxy("doctor", "--json", *arguments, **environment)
    assert done.returncode == code, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["exit_code"] == code
    return {each["check"]: each for each in report["checks"]}


def test_a_standalone_needs_nothing(mongod: MongodProcess, db_name: str) -> None:
    before = mongod.shared_client.list_database_names()
    done = tsproxy("doctor", "--backend", mongod.uri)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "problem" not in done.stdout
    assert re.search(rf"^ok +reachable +answered: {mongod.address} ", done.stdout, re.MULTILINE)
    assert re.search(r"^ok +topology +a standalone server$", done.stdout, re.MULTILINE)
    assert re.search(r"^ok +growth +in parts under load$", done.stdout, re.MULTILINE)
    assert mongod.shared_client.list_database_names() == before


def test_a_replica_set_with_the_settings_of_a_file(replica_set: MongodProcess, tmp_path: Path) -> None:
    (tmp_path / "uri").write_text(replica_set.uri)
    (tmp_path / "f.toml").write_text(f'backend_file = "{tmp_path}/uri"\nwrite_strategy = "in_place"')
    findings = report_of("--config", str(tmp_path / "f.toml"), code=0)
    assert findings["topology"]["text"] == f"replica set rs0, 1 member, primary {replica_set.address}"
    assert (findings["growth"]["severity"], findings["growth"]["text"]) == (
        "note",
        "in place: write_strategy is in_place",
    )


def test_a_missing_index_is_shown_and_its_command_mends_it(mongod: MongodProcess, db_name: str) -> None:
    database = mongod.shared_client[db_name]
    database.create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
    line = f'db.getSiblingDB("{db_name}").getCollection("c").createIndex({{"m": 1, "t": -1}})'
    shown = report_of(code=0, TSPROXY_BACKEND=mongod.uri)["indexes"]
    assert line in [each["text"] for each in shown["remedies"]]
    database.c.create_index([("m", 1), ("t", -1)])
    shown = report_of(code=0, TSPROXY_BACKEND=mongod.uri)["indexes"]
    assert line not in [each["text"] for each in shown["remedies"]]


def test_nobody_listens() -> None:
    address = f"{LOOPBACK}:{free_port()}"
    done = tsproxy("doctor", "--backend", f"mongodb://u:secret@{address}/")
    assert done.returncode == 1
    assert f"{address}: Connection refused" in done.stdout
    assert "secret" not in done.stdout + done.stderr


def test_something_that_is_no_mongod() -> None:
    with socket.create_server((LOOPBACK, 0)) as silent:
        address = f"{LOOPBACK}:{silent.getsockname()[1]}"
        findings = report_of("--backend", f"mongodb://{address}/", "--connect-timeout-ms", "500", code=1)
    assert findings["reachable"]["text"] == f"{address}: accepts connections, but does not answer as MongoDB"


def test_wrong_replica_set_and_strict_warnings(mongod: MongodProcess, replica_set: MongodProcess) -> None:
    findings = report_of("--backend", f"mongodb://{mongod.address}/?replicaSet=rs7", code=2)
    assert "rs7" in findings["topology"]["text"]
    direct = ["--backend", f"mongodb://{replica_set.address}/?directConnection=true"]
    assert report_of(*direct, code=0)["topology"]["severity"] == "warning"
    assert report_of(*direct, "--strict", code=3)["topology"]["severity"] == "warning"


def test_a_proxy_is_not_its_own_backend_and_is_counted_at_its_own(mongod: MongodProcess, tmp_path: Path) -> None:
    server = MongodProcess(tmp_path / "mongod").start()
    proxy = ProxyProcess(tmp_path / "proxy", server.uri).start()
    try:
        assert "is a tsproxy itself" in report_of("--backend", proxy.uri, code=2)["version"]["text"]
        assert report_of("--backend", server.uri, code=0)["proxies"]["text"].startswith("one tsproxy is connected")
        assert "another tsproxy uses the backend" not in proxy.log
    finally:
        proxy.stop()
        server.remove()


def test_settings_that_are_wrong() -> None:
    for arguments, part in (
        ([], "names no backend"),
        (["--backend", "mongodb://u:secret@h/?authMechanism=GSSAPI"], "GSSAPI"),
        (["--backend", "mongodb://u:secret@h/?tls=true&tlsCAFile=/missing"], "/missing: No such file"),
        (["--max-connections", "0"], "max_connections"),
    ):
        done = tsproxy("doctor", *arguments)
        assert done.returncode == 2, done.stderr
        assert part in done.stderr
        assert done.stdout == ""
        assert "secret" not in done.stderr
