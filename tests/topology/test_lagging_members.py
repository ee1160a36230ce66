"""Reads from members that apply joins later than the primary return every row once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pymongo
import pytest
from pymongo.read_preferences import Secondary, SecondaryPreferred
from pymongo.write_concern import WriteConcern

from tests.support.eventually import wait_until
from tests.support.proxy import ProxyProcess, started
from tests.support.replica_set import ReplicaSet

START = datetime(2024, 1, 1, tzinfo=UTC)
ROWS, WRITERS = 2_400, 4
PADDING = "x" * 3_000
"""A server reads a few megabytes in one go, which no join can meet."""
UNJOINED = "tsproxy_unjoined_parts"

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def proxy(three: ReplicaSet, tmp_path: Path) -> Iterator[ProxyProcess]:
    three.heal()
    # The first member has the highest priority. After a failover it takes over, as soon as it has caught up.
    wait_until(lambda: three.primary is three.members[0])
    with started(ProxyProcess(tmp_path, three.uri, flags=["--write-strategy", "in_parts"])) as process:
        yield process


@contextmanager
def nothing_applied(replica_set: ReplicaSet) -> Iterator[None]:
    """The secondaries receive what the primary writes, and apply it after the block.

    None of them seeks an election meanwhile: one that wins accepts no writes before it has applied everything.
    """
    secondaries = [member for member in replica_set.members if member is not replica_set.primary]

    def switch(mode: str, freeze_seconds: int) -> None:
        for member in secondaries:
            with pymongo.MongoClient(f"mongodb://{member.address}/?directConnection=true") as client:
                client.admin.command("replSetFreeze", freeze_seconds)
                client.admin.command({"configureFailPoint": "rsSyncApplyStop", "mode": mode})

    try:
        switch("alwaysOn", 120)
        yield
    finally:
        switch("off", 0)


def fill(proxy: ProxyProcess, database: str) -> None:
    with proxy.client() as client:
        # The default waits for a majority.
        at_primary = client.get_database(database, write_concern=WriteConcern(w=1))
        collection = at_primary.create_collection("c", timeseries={"timeField": "t", "metaField": "m"})

        def write(first: int) -> None:
            for number in range(first, ROWS, WRITERS):
                time = START + timedelta(milliseconds=10 * number)
                collection.insert_one({"_id": number, "t": time, "m": number % 40, "padding": PADDING})

        with ThreadPoolExecutor(WRITERS) as threads:
            list(threads.map(write, range(WRITERS)))


def ids(proxy: ProxyProcess, database: str, preference: Secondary | SecondaryPreferred, direction: int) -> Counter[int]:
    with proxy.client() as client:
        collection = client[database].get_collection("c", read_preference=preference)
        cursor = collection.find({}, {"_id": 1}, batch_size=10).sort("$natural", direction)
        found = [next(cursor)["_id"]]
        # The members apply the joins now.
        threading.Event().wait(1.0)
        return Counter([*found, *(row["_id"] for row in cursor)])


@pytest.mark.parametrize("lags_seconds", [0.2, 2.0], ids=["catches_up", "stays_behind"])
def test_joins_that_a_member_applies_later_meet_no_read(
    three: ReplicaSet, proxy: ProxyProcess, lags_seconds: float
) -> None:
    """The first read of a client from a secondary; it waits, or the primary answers."""
    database = f"lagging_{lags_seconds}".replace(".", "_")
    fill(proxy, database)
    with three.client() as client:
        client[database].get_collection("o", write_concern=WriteConcern(w=3)).insert_one({})
    parts = proxy.metrics()[UNJOINED]
    with ThreadPoolExecutor(4) as threads:
        with nothing_applied(three):
            wait_until(lambda: proxy.metrics()[UNJOINED] == 0)
            reads = [
                threads.submit(ids, proxy, database, preference, direction)
                for preference in (Secondary(), SecondaryPreferred())
                for direction in (1, -1)
            ]
            threading.Event().wait(lags_seconds)
        for read in reads:
            assert read.result() == Counter(range(ROWS))
    assert parts > 0
    with proxy.client() as client:
        client.drop_database(database)
