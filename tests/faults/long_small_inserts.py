"""Small inserts through two proxies: native ones while buckets cannot grow in parts, each stored once (W63, W102)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pymongo
import pytest
from pymongo.errors import WriteError

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

START = datetime(2024, 5, 1, tzinfo=UTC)
WRITERS = 64
LONGEST_SECONDS = 60.0


@pytest.fixture
def both(mongod: MongodProcess, tmp_path: Path) -> Iterator[list[ProxyProcess]]:
    processes = []
    # The third one does nothing, but does not keep readers waiting either, so there are no parts.
    for name, strategy in (("one", "auto"), ("other", "auto"), ("third", "in_place")):
        (tmp_path / name).mkdir()
        # Writers in Python are slow: those of 20 ms make a round.
        flags = ["--write-strategy", strategy, "--commit-linger-ms", "20"]
        processes.append(ProxyProcess(tmp_path / name, mongod.uri, flags=flags).start())
    yield processes[:2]
    for process in processes:
        process.stop()


def coalesced(process: ProxyProcess) -> float:
    return process.metrics().get("tsproxy_coalesced_measurements_total", 0.0)


def test_w63_scattered_rows_go_natively_beside_another_proxy_and_are_stored_once(
    mongod: MongodProcess, both: list[ProxyProcess], db_name: str
) -> None:
    """One in fifty documents has no time; its writer gets what the server says of it alone."""
    stored: list[list[int]] = []

    def write(client: pymongo.MongoClient[dict[str, Any]], writer: int, enough: Event) -> list[int]:
        series, done = client[db_name].x, []
        for number in range(1_000_000):
            if enough.is_set():
                break
            name = writer * 1_000_000 + number
            document = {"_id": name, "t": START + timedelta(seconds=number), "m": name % 997, "v": number / 7}
            if number % 50 == 49:
                del document["t"]
                with pytest.raises(WriteError, match="'t' must be present") as caught:
                    series.insert_one(document)
                assert (caught.value.code, caught.value.details["index"]) == (2, 0)  # type: ignore[index]
                continue
            series.insert_one(document)
            done.append(name)
        return done

    with both[0].client() as client:
        client[db_name].create_collection("x", timeseries={"timeField": "t", "metaField": "m"})
    # One after the other: the writers of one process are a load for one proxy only.
    for position, proxy in enumerate(both):
        enough = Event()
        with proxy.client(maxPoolSize=WRITERS) as client, ThreadPoolExecutor(WRITERS) as threads:
            writers = [threads.submit(write, client, position * WRITERS + number, enough) for number in range(WRITERS)]
            until = time.monotonic() + LONGEST_SECONDS
            while time.monotonic() < until and coalesced(proxy) <= 100:
                time.sleep(0.1)
            enough.set()
            stored += [writer.result() for writer in writers]
        assert coalesced(proxy) > 100
    names = sorted(name for each in stored for name in each)
    assert sorted(row["_id"] for row in mongod.shared_client[db_name].x.find({}, {"_id": 1})) == names
