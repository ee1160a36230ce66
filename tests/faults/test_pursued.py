"""What an administrator sees of writes that were sent, and of which nobody knows yet whether they are stored."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pymongo.errors import PyMongoError

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started


@pytest.mark.parametrize("access", ["buckets", "native"])
def test_measurements_that_are_pursued_are_counted(
    tmp_path: Path, backend: MongodProcess, database: str, access: str
) -> None:
    """Also when their client has an error, and they are uncommitted for nobody any more."""
    flags = ("--server-selection-timeout-ms", "2000", "--timeseries-access", access)
    with started(ProxyProcess(tmp_path / "proxy", backend.uri, flags=flags)) as proxy, proxy.client() as client:
        series = client[database].c
        series.insert_one({"_id": 0, "t": datetime.now(UTC), "m": 1})
        assert proxy.metrics()["tsproxy_pursued_measurements"] == 0
        backend.pause()
        try:
            with pytest.raises(PyMongoError):
                series.insert_one({"_id": 1, "t": datetime.now(UTC), "m": 1})
            proxy.wait_until(lambda: proxy.metrics()["tsproxy_pursued_measurements"] == 1)
            assert proxy.metrics()["tsproxy_uncommitted_measurements"] == 0
            assert proxy.metrics()["tsproxy_pursued_bytes"] > 0
        finally:
            backend.resume()
        proxy.wait_until(lambda: proxy.metrics()["tsproxy_pursued_measurements"] == 0)
        assert proxy.metrics()["tsproxy_pursued_bytes"] == 0
        with backend.client() as direct:
            assert sorted(each["_id"] for each in direct[database].c.find()) == [0, 1]
