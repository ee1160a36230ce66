"""The proxy's account is dropped and created again while the proxy runs: the proxy logs in again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import ObjectId
from pymongo.errors import OperationFailure

from tests.support.access import PASSWORD, GuardedMongod, errors_of
from tests.support.proxy import ProxyProcess

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
TIMESERIES = {"timeField": "t", "metaField": "m"}
SOON_SECONDS = 15.0
"""Less than the interval of the regular checks."""


class Account:
    """An account of its own for the proxy, and a client of the proxy."""

    def __init__(self, server: GuardedMongod, directory: Path, role: str) -> None:
        self.server, self.root, self.role = server, server.shared_client, role
        self.database = f"again_{ObjectId()}"
        self.root[self.database].create_collection("ts", timeseries=TIMESERIES)
        server.create_user(self.database, "writer", ["readWrite"])
        self.create()
        uri = server.uri_of("mortal", PASSWORD, "admin")
        self.proxy = ProxyProcess(directory, uri, flags=["--namespace-refresh-seconds", "1"]).start()
        self.client: pymongo.MongoClient[dict[str, Any]] = self.proxy.client(
            username="writer", password=PASSWORD, authSource=self.database
        )

    def create(self) -> None:
        """Create the user of the proxy."""
        self.server.create_user("admin", "mortal", [self.role])

    def drop(self) -> None:
        """Drop it."""
        self.root.admin.command("dropUser", "mortal")

    def replies(self) -> list[Any]:
        """The number of rows, or the error, of an insert of one and of a read of another collection."""
        insert = {"insert": "ts", "documents": [{"t": START, "m": 1}]}
        found = [errors_of(self.client, self.database, each) for each in (insert, {"count": "plain"})]
        return [each[0] if isinstance(each, tuple) else each["n"] for each in found]

    def close(self) -> None:
        """Stop and remove everything."""
        self.client.close()
        self.proxy.stop()
        self.root[self.database].command("dropAllUsersFromDatabase")
        self.root.drop_database(self.database)
        with suppress(OperationFailure):
            self.drop()


@pytest.fixture(params=["tsproxy", "readWriteAnyDatabase"])
def account(request: pytest.FixtureRequest, guarded_set: GuardedMongod, tmp_path: Path) -> Iterator[Account]:
    """With access to buckets, and natively."""
    one = Account(guarded_set, tmp_path, request.param)
    yield one
    one.close()


def test_an_account_that_comes_back_at_once(account: Account) -> None:
    """No connection of the proxy was lost, and all are logged out."""
    assert account.replies() == [1, 0]
    account.drop()
    account.create()
    account.proxy.wait_until(lambda: account.replies() == [1, 0], SOON_SECONDS)
    account.proxy.wait_until(lambda: account.proxy.status("/readyz")[0] == 200, SOON_SECONDS)
    assert account.replies() == [1, 0]


def test_an_account_that_is_gone_for_a_while(account: Account) -> None:
    assert account.replies() == [1, 0]
    access = account.proxy.status("/readyz")[1]
    account.drop()

    def is_told() -> bool:
        account.replies()
        return "mortal" in account.proxy.status("/readyz")[1]

    account.proxy.wait_until(is_told, SOON_SECONDS)
    status, reason = account.proxy.status("/readyz")
    assert status == 503
    assert "the backend's account is not logged in any more" in reason
    assert "Authentication failed" in reason
    assert "privileges" not in reason
    refused = errors_of(account.client, account.database, {"insert": "ts", "documents": [{"t": START, "m": 1}]})
    if account.role == "tsproxy":
        assert refused[0] == 13
        assert refused[2].endswith("or is not logged in any more")
    else:
        # Natively, where the account may do nothing, the client's own rights count.
        assert refused["n"] == 1
    account.create()
    account.proxy.wait_until(lambda: account.replies() == [1, 0], SOON_SECONDS)
    account.proxy.wait_until(lambda: account.proxy.status("/readyz") == (200, access), SOON_SECONDS)
    assert "the backend's account has logged in again" in account.proxy.log
    assert account.proxy.log.count("access to time-series collections ") == 1
