"""A backend that is not there yet, or no longer: the proxy stays and says what it waits for."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pymongo.errors import PyMongoError

from tests.support.mongod import MongodProcess
from tests.support.ports import accepts
from tests.support.proxy import ProxyProcess


def test_backend_may_come_later_and_go_again(tmp_path: Path) -> None:
    backend = MongodProcess(tmp_path / "backend")
    proxy = ProxyProcess(tmp_path, backend.uri, flags=["--server-selection-timeout-ms", "400"]).start(wait=False)
    try:
        proxy.wait_until(lambda: accepts(proxy.status_port))
        proxy.wait_until(lambda: "Connection refused" in proxy.status("/readyz")[1])
        status, reason = proxy.status("/readyz")
        assert status == 503
        assert backend.address in reason
        assert proxy.status("/livez")[0] == 200
        assert "waiting for the backend" in proxy.log
        backend.start()
        proxy.wait_until(lambda: proxy.status("/readyz")[0] == 200)
        with proxy.client() as client:
            client.db.create_collection("c", timeseries={"timeField": "t"})
            backend.stop()
            with pytest.raises(PyMongoError) as caught:
                client.other.command({"collStats": "c"})
        assert "Topology" not in str(caught.value)
        assert "configured timeouts" not in str(caught.value)
        proxy.signal(signal.SIGTERM)
        assert proxy.wait() == 0
    finally:
        proxy.stop()
        backend.remove()


def test_waiting_proxy_stops_at_once(tmp_path: Path) -> None:
    proxy = ProxyProcess(tmp_path, "mongodb://127.0.0.1:1/").start(wait=False)
    proxy.wait_until(lambda: "waiting for the backend" in proxy.log)
    assert proxy.stop() == 0
