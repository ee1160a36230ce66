"""Open cursors put joins off as long as their server process lives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection
from pymongo.errors import AutoReconnect, OperationFailure

from tests.support.eventually import wait_until
from tests.support.mongod import MongodProcess
from tests.support.own_server import ALONE_OR_SET, kind_of, own_server
from tests.support.proxy import ProxyProcess, started

Client = pymongo.MongoClient[dict[str, Any]]

START = datetime(2024, 1, 1, tzinfo=UTC)
A_WHILE_SECONDS = 6.0
"""Without a cursor, parts are joined within this time."""
UNJOINED, PUT_OFF = "tsproxy_unjoined_parts", "tsproxy_joins_put_off_total"


@pytest.fixture(params=ALONE_OR_SET, ids=kind_of)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MongodProcess]:
    with own_server(tmp_path / "mongod", request.param) as process:
        yield process


@pytest.fixture
def proxy(tmp_path: Path, backend: MongodProcess) -> Iterator[ProxyProcess]:
    with started(ProxyProcess(tmp_path / "proxy", backend.uri, flags=["--write-strategy", "in_parts"])) as process:
        yield process


def load(collection: Collection[dict[str, Any]], first: int) -> None:
    for second in range(first, first + 300):
        collection.insert_one({"_id": second, "t": START + timedelta(seconds=second), "m": second % 3})


def next_batch(collection: Collection[dict[str, Any]], cursor_id: Any) -> dict[str, Any]:
    return collection.database.command({"getMore": cursor_id, "collection": collection.name, "batchSize": 5})


ZLIB = {"compressors": "zlib"}
READS: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({"find": "c"}, {}, False),
    ({"find": "c"}, {}, True),
    ({"aggregate": "c", "pipeline": []}, {}, False),
    ({"find": "system.buckets.c"}, {}, False),
    ({"aggregate": "c", "pipeline": []}, ZLIB, False),
    # The server carries this one out as the client has sent it.
    ({"find": "c", "hint": {"$natural": 1}}, {}, True),
]
"""Commands, options of their clients, and whether they are the first of a connection."""


class Reading:
    """A client that has opened a cursor in a database of its own."""

    def __init__(self, client: Client, name: str, read: dict[str, Any], *, is_first: bool) -> None:
        database = client[name]
        self.rows = database.c
        if not is_first:
            assert self.rows.find_one() is not None
        size = {"cursor": {"batchSize": 1}} if "aggregate" in read else {"batchSize": 1}
        self._cursor_id = database.command({**read, **size})["cursor"]["id"]
        self._read_from = database[str(read.get("find", "c"))]
        assert self._cursor_id

    def check_that_it_is_gone(self) -> None:
        with pytest.raises(OperationFailure) as refused:
            next_batch(self._read_from, self._cursor_id)
        assert refused.value.code == 43


@pytest.mark.parametrize(
    ("backend", "reads"), [("rs0", READS), (None, READS[:2])], indirect=["backend"], ids=["rs0", "standalone"]
)
def test_the_cursors_of_a_killed_server_put_no_joins_off(
    backend: MongodProcess, proxy: ProxyProcess, reads: list[tuple[dict[str, Any], dict[str, Any], bool]]
) -> None:
    """Also one that the first command of a connection has opened, or one that compresses."""
    with ExitStack() as stack:
        writer, direct = stack.enter_context(proxy.client()), stack.enter_context(backend.client())
        readings = []
        for number, (read, options, is_first) in enumerate(reads):
            name = f"db{number}"
            load(writer[name].create_collection("c", timeseries={"timeField": "t", "metaField": "m"}), 0)
            client = stack.enter_context(proxy.client(**options))
            readings.append(Reading(client, name, read, is_first=is_first))
        # A killed server loses what is not in its journal yet.
        direct.admin.command({"fsync": 1})
        backend.kill()
        backend.start()
        for number in range(len(reads)):
            load(writer[f"db{number}"].c, 1_000)
        wait_until(lambda: proxy.metrics()[UNJOINED] == 0)
        for each in readings:
            each.check_that_it_is_gone()
            assert each.rows.count_documents({}) == 600


@pytest.mark.parametrize("backend", ["rs0"], indirect=True)
def test_a_cursor_puts_joins_off_also_after_a_step_down(backend: MongodProcess, proxy: ProxyProcess) -> None:
    with proxy.client() as client, backend.client() as direct:
        collection = client["db"].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
        load(collection, 0)
        cursor_id = client["db"].command({"find": "c", "batchSize": 1})["cursor"]["id"]
        with suppress(AutoReconnect):
            direct.admin.command({"replSetStepDown": 1, "force": True})
        wait_until(lambda: bool(direct.admin.command("hello")["isWritablePrimary"]))
        load(collection, 1_000)
        before = proxy.metrics()[PUT_OFF]
        threading.Event().wait(A_WHILE_SECONDS)
        assert proxy.metrics()[UNJOINED] > 0
        assert proxy.metrics()[PUT_OFF] > before
        assert next_batch(collection, cursor_id)["ok"] == 1
