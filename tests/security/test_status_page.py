"""What the status listener shows to whom, over real connections."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proxy.observe.http_messages import POLICY
from tests.support.access import PASSWORD, GuardedMongod
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, own_address
from tests.support.proxy import ProxyProcess, started

PATHS = ("/", "/page/page.css", "/page/page.js", "/status.json", "/metrics", "/livez", "/readyz")


@pytest.fixture(scope="module")
def everywhere(mongod: MongodProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy whose status listener can be reached from other machines; all commands are slow."""
    server = ProxyProcess(tmp_path_factory.mktemp("everywhere"), mongod.uri, flags=["--slow-command-ms", "0"])
    server.flags += ("--status-listen", f"0.0.0.0:{server.status_port}")
    try:
        yield server.start()
    finally:
        server.stop()


def ask(
    proxy: ProxyProcess, path: str, *, method: str = "GET", address: str = LOOPBACK, host: str = ""
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(address, proxy.status_port, timeout=10)
    try:
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def document(proxy: ProxyProcess, **where: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(proxy, "/status.json", **where)[2])
    return found


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_tells_browsers_what_they_may_do(everywhere: ProxyProcess, path: str) -> None:
    status, headers, body = ask(everywhere, path)
    assert (status, bool(body)) == (200, True)
    assert headers["Content-Security-Policy"] == POLICY
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(everywhere: ProxyProcess, path: str, method: str) -> None:
    status, headers, _ = ask(everywhere, path, method=method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/page/../status.py", "/page/", "/page", "/page/%2e%2e/status.py", "//etc/passwd"])
def test_there_are_no_other_files(everywhere: ProxyProcess, path: str) -> None:
    assert ask(everywhere, path)[0] == 404


def test_names_stay_on_this_machine(everywhere: ProxyProcess, db_name: str) -> None:
    with everywhere.client(appname="secretapplication") as client:
        client[db_name].create_collection("secretcollection", timeseries={"timeField": "t"})
        client[db_name].secretcollection.insert_one({"t": datetime.now(UTC), "secretfield": "secretvalue"})
        list(client[db_name].secretcollection.find({"secretfield": "secretvalue"}, comment="secretcomment"))
    here = ask(everywhere, "/status.json")[2]
    assert b"secretcollection" in here
    assert b"secretvalue" not in here
    assert document(everywhere)["shows"] == "names"
    everywhere.wait_until(lambda: document(everywhere)["totals"]["measurements"] > 0)
    assert b"secretcomment" in ask(everywhere, "/metrics")[2]
    for where in ({"address": own_address()}, {"host": "rebound.example"}):
        status, _, body = ask(everywhere, "/metrics", **where)
        assert (status, b"secret" in body) == (200, False)
        assert b'comment="other"' in body
        status, _, body = ask(everywhere, "/status.json", **where)
        assert (status, b"secret" in body) == (200, False)
        assert json.loads(body)["totals"]["measurements"] > 0


def test_with_access_control_names_are_not_shown_by_default(guarded_proxy: ProxyProcess) -> None:
    shown = document(guarded_proxy)
    assert (shown["shows"], shown["backend"]["accessControl"]) == ("numbers", True)
    assert {"collections", "slow"}.isdisjoint(shown)
    assert "uri" not in shown["backend"]


@pytest.mark.parametrize("page", ["numbers", "names"])
def test_metrics_show_names_only_with_the_setting(guarded: GuardedMongod, tmp_path: Path, page: str) -> None:
    """Neither users with limits nor texts of clients: nobody logs in to read the metrics."""
    guarded.create_user("app", f"alice_{page}", ["readWrite"])
    config = tmp_path / "config.toml"
    config.write_text(f'[user_limits."alice_{page}@app"]\nmax_commands = 5\n')
    flags = ["--slow-command-ms", "0", "--status-page", page, "--config", str(config)]
    login = {"username": f"alice_{page}", "password": PASSWORD, "authSource": "app"}
    with (
        started(ProxyProcess(tmp_path, guarded.account_uri, flags=flags)) as proxy,
        proxy.client(appname="secretapplication", **login) as client,
    ):
        list(client.app.secretcollection.find(comment="secretcomment"))
        shown = ask(proxy, "/metrics")[2]
    names = (b"alice", b"secretapplication", b"secretcomment")
    assert [each in shown for each in names] == [page == "names"] * 3
    assert b"secretcollection" not in shown
