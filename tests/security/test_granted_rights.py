"""Rights that are granted while a client is connected, which was refused something before."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId

from tests.support.access import PASSWORD, GuardedMongod, errors_of
from tests.support.proxy import ProxyProcess

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
BY_MEASUREMENT = {"delete": "ts", "deletes": [{"q": {"v": 3}, "limit": 0}]}
REMOVE = {"findAndModify": "ts", "query": {"v": 4}, "remove": True}


@pytest.fixture
def patient(guarded: GuardedMongod, tmp_path: Path) -> Iterator[ProxyProcess]:
    """A proxy that uses what it knows of roles as long as by default."""
    process = ProxyProcess(tmp_path, guarded.account_uri)
    try:
        yield process.start()
    finally:
        process.stop()


def test_a_granted_right_counts_on_a_connection_that_was_refused(guarded: GuardedMongod, patient: ProxyProcess) -> None:
    database = f"granted_{ObjectId()}"
    root = guarded.shared_client[database]
    root.create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
    root.ts.insert_many([{"_id": number, "t": START, "m": 1, "v": number} for number in range(9)])
    on_series = {"db": database, "collection": "ts"}
    root.command("createRole", "some", privileges=[{"resource": on_series, "actions": ["find"]}], roles=[])
    guarded.create_user(database, "growing", ["some"])
    login: dict[str, Any] = {"username": "growing", "password": PASSWORD, "authSource": database, "maxPoolSize": 1}
    try:
        with guarded.client(**login) as native, patient.client(**login) as proxied:
            before = [errors_of(each, database, BY_MEASUREMENT) for each in (native, proxied)]
            assert [each[0] for each in before] == [13, 13]
            granted = {"resource": on_series, "actions": ["remove", "update", "insert"]}
            root.command("grantPrivilegesToRole", "some", privileges=[granted])
            time.sleep(1.1)
            assert errors_of(proxied, database, BY_MEASUREMENT)["n"] == 1
            assert errors_of(proxied, database, REMOVE)["value"]["_id"] == 4
            insert = {"insert": "ts", "documents": [{"t": START, "m": 1, "v": 10}]}
            assert [errors_of(each, database, insert)["n"] for each in (native, proxied)] == [1, 1]
    finally:
        root.command("dropAllUsersFromDatabase")
        root.command("dropAllRolesFromDatabase")
        guarded.shared_client.drop_database(database)
