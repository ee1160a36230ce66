"""Several proxies find one another with the least role, and recognise what another one has executed."""

from __future__ import annotations

import datetime as dt
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from bson import ObjectId
from bson.binary import Binary
from bson.int64 import Int64
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from tests.support.access import GuardedMongod
from tests.support.logged_in import logged_in
from tests.support.proxy import ProxyProcess, started

START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
KNOWN = "tsproxy_peers"
LINKED = "tsproxy_peers_linked"
MARGIN_SECONDS = 10.0
"""Longer than two looks at the backend for other processes."""


@pytest.fixture
def pair(guarded_set: GuardedMongod, tmp_path: Path) -> Iterator[tuple[ProxyProcess, ProxyProcess]]:
    """Linked with one another, and with a proxy of other tests, if there is one."""
    with ExitStack() as running:
        one, two = (ProxyProcess(tmp_path / name, guarded_set.account_uri) for name in ("one", "two"))
        running.enter_context(started(one))
        one.wait_until(lambda: one.metrics().get(LINKED) == one.metrics().get(KNOWN), MARGIN_SECONDS)
        others = one.metrics()[KNOWN]
        running.enter_context(started(two))
        try:
            for each in (one, two):
                each.wait_until(lambda each=each: each.metrics().get(LINKED) == others + 1, MARGIN_SECONDS)
            yield one, two
        finally:
            for each in (one, two):
                if each.running:
                    os.kill(each.pid, signal.SIGCONT)


@pytest.fixture
def database(guarded_set: GuardedMongod, db_name: str) -> Iterator[str]:
    guarded_set.create_user(db_name, "writer", ["readWrite"])
    yield db_name
    guarded_set.shared_client[db_name].command("dropUser", "writer")
    guarded_set.shared_client.drop_database(db_name)


def statement(number: int, session: Binary, count: int) -> dict[str, Any]:
    rows = [{"t": START + dt.timedelta(seconds=each), "m": 1, "_id": ObjectId()} for each in range(count)]
    return {"insert": "c", "documents": rows, "lsid": {"id": session}, "txnNumber": Int64(number)}


@pytest.mark.parametrize("signal_number", [None, signal.SIGSTOP, signal.SIGKILL], ids=["both", "hung", "killed"])
async def test_a_retry_through_another_proxy_is_recognised_with_the_least_role(
    guarded_set: GuardedMongod,
    pair: tuple[ProxyProcess, ProxyProcess],
    database: str,
    signal_number: signal.Signals | None,
) -> None:
    one, two = pair
    guarded_set.shared_client[database].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
    session = Binary(uuid4().bytes, 4)
    sent = [statement(number, session, count) for number, count in ((1, 1), (2, 20))]
    async with (
        logged_in(one.port, "writer", database, database) as first,
        logged_in(two.port, "writer", database, database) as second,
    ):
        for each in sent:
            assert (await first.run(each)).get("n") == len(each["documents"])
        if signal_number is not None:
            os.kill(one.pid, signal_number)
        assert (await second.run(sent[-1])).get("n") == len(sent[-1]["documents"])
    assert guarded_set.shared_client[database].c.count_documents({}) == 21


def test_the_least_role_is_enough_to_list_the_others(
    guarded_set: GuardedMongod, pair: tuple[ProxyProcess, ProxyProcess]
) -> None:
    one, _ = pair
    with MongoClient[dict[str, Any]](guarded_set.through(one.address, guarded_set.root_uri)) as client:
        reply = client.admin.command({"tsproxy": "peers"})
    assert "whyUnknown" not in reply
    assert len(reply["peers"]) == one.metrics()[KNOWN]
    assert {(other["linked"], other["linksBack"]) for other in reply["peers"]} == {(True, True)}


def test_nobody_else_is_seen_with_the_least_role(guarded_set: GuardedMongod) -> None:
    """What the proxies rely on shows the account its own operations only."""
    with MongoClient[dict[str, Any]](guarded_set.account_uri) as client:
        shown = list(client.admin.aggregate([{"$currentOp": {"idleConnections": True}}]))
        users = {user["user"] for each in shown for user in each.get("effectiveUsers", ())}
        assert users == {"tsproxy"}
        with pytest.raises(OperationFailure, match="not authorized"):
            client.admin.aggregate([{"$currentOp": {"allUsers": True}}])
