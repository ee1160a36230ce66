"""A machine that stands still and goes on, such as one that is suspended: every process is stopped at once."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tests.support.books import START
from tests.support.fleet_process import FleetProcess
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

SOME = 150
"""Measurements acknowledged through each proxy before and after."""


class Stoppable(Protocol):
    """A process."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        ...


def stand_still(processes: Sequence[Stoppable], seconds: float, chance: random.Random) -> None:
    """Stop all of them; they go on in any order."""
    for each in processes:
        each.signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        for each in chance.sample(processes, len(processes)):
            each.signal(signal.SIGCONT)


def survive(backend: MongodProcess, folder: Path, database: str, pauses: Sequence[float], flags: Sequence[str]) -> None:
    """Two proxies with writers stand still together with the backend, so many seconds each time; then all go on."""
    chance = random.Random(len(pauses))
    proxies = [ProxyProcess(folder / f"proxy{number}", backend.uri, flags=flags) for number in range(2)]
    fleets: list[FleetProcess] = []
    try:
        names = [f"{database}_{number}" for number in range(len(proxies))]
        for proxy, name in zip(proxies, names, strict=True):
            backend.shared_client[name].create_collection("c", timeseries={"timeField": "t", "metaField": "m"})
            fleets.append(FleetProcess(proxy.start().uri, name).start())
        for seconds in pauses:
            for fleet in fleets:
                fleet.until(SOME)
            stand_still([backend, *proxies, *fleets], seconds, chance)
            for fleet in fleets:
                fleet.until(SOME)
        for proxy, fleet, name in zip(proxies, fleets, names, strict=True):
            fleet.finish().check(backend.shared_client)
            _everything_is_answered(proxy, name)
    finally:
        for each in (*fleets, *proxies):
            each.kill()
        for number in range(len(proxies)):
            backend.shared_client.drop_database(f"{database}_{number}")


def _everything_is_answered(proxy: ProxyProcess, name: str) -> None:
    """Of every way through the proxy one command."""
    assert proxy.status("/readyz")[0] == 200
    assert proxy.metrics()["tsproxy_invariant_violations_total"] == 0
    with proxy.client(socketTimeoutMS=20_000) as client:
        rows = client[name].c
        rows.insert_one({"t": START, "m": "last", "v": 1})
        assert rows.find_one({"m": "last"}, {"_id": 0, "v": 1}) == {"v": 1}
        assert rows.delete_many({"v": 1}).deleted_count == 1
        client[name].plain.insert_one({"_id": 1})
        assert client[name].plain.find_one() == {"_id": 1}
        assert set(client[name].list_collection_names()) == {"c", "plain", "system.views", "system.buckets.c"}
