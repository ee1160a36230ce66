"""Faults while buckets grow in parts: joins under way are lost, repeated, or left to the next process (W102, W126)."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path
from typing import Any

import pymongo

from tests.support.books import START, bits_of
from tests.support.fleet import Fleet
from tests.support.fleet_in_parts import DEADLINE_SECONDS, IN_PARTS, SOME, in_parts, joined, killed_while_in_parts
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess


async def test_what_a_killed_proxy_left_is_read_and_written_on_and_soon_joined(
    either: MongodProcess, parts_proxy: ProxyProcess, name: str
) -> None:
    """The backend shows that it is gone, and the next process that it has made nothing of it."""
    fleet = await killed_while_in_parts(either, parts_proxy, name)
    # Not straight from the backend: such a read may meet a join.
    with parts_proxy.client() as client:
        fleet.check(client)
    with either.client() as client:
        await joined(client, name)
        fleet.check(client)


async def test_what_a_killed_proxy_left_is_soon_joined_by_another(
    either: MongodProcess, tmp_path: Path, name: str
) -> None:
    """Which has written to the collection before, and goes on with it."""
    one, other = (ProxyProcess(tmp_path / f"proxy{number}", either.uri, flags=IN_PARTS) for number in range(2))
    try:
        fleets = [
            Fleet(proxy.start().uri, name, seed=seed, erasers=1, serverSelectionTimeoutMS=1_000)
            for seed, proxy in enumerate((one, other))
        ]

        async def killed() -> None:
            await fleets[0].until(SOME)
            one.kill()
            with either.client() as client:
                assert in_parts(client, name)

        async def survives() -> None:
            await fleets[1].until(3 * SOME)

        await asyncio.gather(fleets[0].run_during(killed), fleets[1].run_during(survives))
        both = fleets[1]
        both.books.add(fleets[0].books)
        with either.client() as client:
            await joined(client, name)
            both.check(client)
    finally:
        for proxy in (one, other):
            proxy.stop()


async def test_two_proxies_write_the_same_series(either: MongodProcess, tmp_path: Path, name: str) -> None:
    """Each joins its own parts; neither takes or loses a row of the other."""
    proxies = [ProxyProcess(tmp_path / f"proxy{number}", either.uri, flags=IN_PARTS) for number in range(2)]
    try:
        fleets = [Fleet(proxy.start().uri, name, seed=seed, erasers=1) for seed, proxy in enumerate(proxies)]

        async def events(fleet: Fleet) -> None:
            await fleet.until(2 * SOME)

        await asyncio.gather(*(fleet.run_during(lambda fleet=fleet: events(fleet)) for fleet in fleets))
        both = fleets[0]
        both.books.add(fleets[1].books)
        assert not both.books.errors
        with either.client() as client:
            await joined(client, name)
            both.check(client)
    finally:
        for proxy in proxies:
            proxy.stop()


SERIES = 12
"""So many buckets in a round grow in parts."""


async def test_what_two_proxies_wrote_for_a_series_becomes_one_bucket(
    either: MongodProcess, tmp_path: Path, name: str
) -> None:
    """And grows on, so each series has as many as through one proxy.

    Standalones have no transactions for that, and servers before 6.0 do not say whether the order of bucket ids is that
    of time (Q12), on which it depends.
    """
    proxies = [ProxyProcess(tmp_path / f"proxy{number}", either.uri, flags=IN_PARTS).start() for number in range(2)]
    try:
        with either.client() as native, proxies[0].client() as one, proxies[1].client() as other:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while any(proxy.metrics()["tsproxy_peers_linked"] < 1 for proxy in proxies):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            is_set, version = "setName" in native.admin.command("hello"), native.server_info()["versionArray"]
            buckets = 1 if is_set and version[0] >= 6 else 2
            written = 0
            for _ in range(2):
                for _ in range(40):
                    for number, client in enumerate((one, other)):
                        client[name].c.insert_many([_row(written, number, series) for series in range(SERIES)])
                    written += 1
                async with asyncio.timeout(DEADLINE_SECONDS):
                    while _sizes(native[name]) != [2 * written // buckets] * (SERIES * buckets):  # noqa: ASYNC110
                        await asyncio.sleep(0.2)
                for client in (native, one, other):
                    assert list(map(bits_of, sorted(client[name].c.find(), key=_identity))) == [
                        bits_of(_row(each, number, series))
                        for each in range(written)
                        for number in range(2)
                        for series in range(SERIES)
                    ]
            absorbed = [proxy.metrics()["tsproxy_peer_buckets_absorbed_total"] for proxy in proxies]
            given_up = [proxy.metrics()["tsproxy_peer_buckets_given_up_total"] for proxy in proxies]
            assert sum(absorbed) == sum(given_up) == (2 * SERIES if buckets == 1 else 0)
            native[name].command("validate", "system.buckets.c")
    finally:
        for proxy in proxies:
            proxy.stop()


def _sizes(database: pymongo.database.Database[dict[str, Any]]) -> list[int]:
    """The number of measurements of each bucket."""
    return [len(each["data"]["t"]) for each in database["system.buckets.c"].find({}, {"data.t": 1})]


def _row(number: int, proxy: int, series: int) -> dict[str, Any]:
    times = {"t": START + dt.timedelta(seconds=number, milliseconds=proxy)}
    values = {"v": number * 0.5, "w": {"text": f"{number} {proxy}", "list": [number, None, proxy]}}
    return {"_id": [number, proxy, series], **times, "m": series, **values}


def _identity(row: dict[str, Any]) -> list[int]:
    identity: list[int] = row["_id"]
    return identity


async def test_a_clean_stop_leaves_no_parts(either: MongodProcess, tmp_path: Path, name: str) -> None:
    proxy = ProxyProcess(tmp_path / "proxy", either.uri, flags=IN_PARTS).start()
    try:
        fleet = Fleet(proxy.uri, name)
        await fleet.run_during(lambda: fleet.until(SOME))
    finally:
        await asyncio.to_thread(proxy.stop)
    with either.client() as client:
        fleet.check(client)
        assert not in_parts(client, name)


BATCH_ROWS, BATCHES = 1_000, 12


async def test_what_is_deleted_while_parts_are_joined_stays_deleted(
    either: MongodProcess, tmp_path: Path, name: str
) -> None:
    """Also by a process that knows of no others, whose joins do not compare all parts (U8)."""
    proxy = ProxyProcess(tmp_path, either.uri).start()
    try:
        with proxy.client() as client:
            for attempt in range(6):
                collection = client[name].create_collection(
                    f"c{attempt}", timeseries={"timeField": "t", "metaField": "m"}
                )
                for batch in range(BATCHES):
                    numbers = range(batch * BATCH_ROWS, (batch + 1) * BATCH_ROWS)
                    collection.insert_many([_deletable(number) for number in numbers])
                await asyncio.sleep(0.05 * attempt)
                left = [number for number in range(BATCHES * BATCH_ROWS) if number % 40 >= 35]
                deleted = await asyncio.to_thread(collection.delete_many, {"v": {"$lt": 35}})
                assert deleted.deleted_count == BATCHES * BATCH_ROWS - len(left)
                assert sorted(each["_id"] for each in collection.find({}, {"_id": 1})) == left
                async with asyncio.timeout(DEADLINE_SECONDS):
                    while proxy.metrics()["tsproxy_unjoined_parts"]:  # noqa: ASYNC110 - only the proxy knows
                        await asyncio.sleep(0.1)
                assert sorted(each["_id"] for each in collection.find({}, {"_id": 1})) == left
    finally:
        proxy.stop()


def _deletable(number: int) -> dict[str, Any]:
    return {"_id": number, "t": START + dt.timedelta(milliseconds=100 * number), "m": number % 3, "v": number % 40}
