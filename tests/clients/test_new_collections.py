"""An insert into a name that does not exist is warned of, once for each collection."""

from __future__ import annotations

from pathlib import Path

from proxy.clients.new_collections import WARNING
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess


def test_one_warning_for_each_collection_that_an_insert_creates(
    mongod: MongodProcess, tmp_path: Path, db_name: str
) -> None:
    mongod.shared_client[db_name].create_collection("old")
    proxy = ProxyProcess(tmp_path, mongod.uri).start()
    with proxy.client() as client:
        client[db_name].create_collection("series", timeseries={"timeField": "t"})
        client[db_name].create_collection("made")
        for name in ("old", "made", "typo", "typo", "second"):
            client[db_name][name].insert_one({"x": 1})
    proxy.stop()
    warned = [line for line in proxy.log.splitlines() if WARNING in line]
    assert [line.partition("collection=")[2].split()[0] for line in warned] == [
        f"{db_name}.typo",
        f"{db_name}.second",
    ]
