"""F: the same load through one, two and four proxies of one backend, into series of their own and into shared ones.

The servers are its own, as another idle proxy of the backend would count as one of the fleet. Connections are spread
evenly over the proxies, as a load balancer does.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pymongo

from bench import generator
from bench.context import Context, Window, attempt, load_metrics
from bench.documents import IOT
from bench.generator import Load
from bench.messages import insert_template
from bench.processes import Mongod, Proxy
from bench.results import Sample
from bench.settling import settle
from bench.targets import NATIVE, PROXY, Site, Target, fresh_collection
from bench.workloads.sustained import FACTOR, LongCase, fill

SIZES: Final = (1, 2, 4)
LINKED_SECONDS: Final = 30.0
"""Proxies of one backend find each other within seconds."""
QUIET_SECONDS: Final = 10.0
"""Buckets of several proxies become one some seconds after the last part was joined."""


@dataclass(frozen=True, slots=True)
class FleetCase:
    """A load into series that each connection has for itself, or that all of them share."""

    load: LongCase
    is_shared: bool

    @property
    def name(self) -> str:
        """For example ``iot 128c 1000s shared``."""
        return f"{self.load.name} {'shared' if self.is_shared else 'own'}"


CASES: Final = (
    FleetCase(LongCase(IOT, 128, 128, 500), is_shared=False),
    FleetCase(LongCase(IOT, 128, 1000, 200), is_shared=True),
)


def name_of(size: int) -> str:
    """What the tables call a fleet; without proxies it is the native collection."""
    return {0: NATIVE, 1: "1 proxy"}.get(size, f"{size} proxies")


def _are_linked(proxies: Sequence[Proxy]) -> bool:
    for proxy in proxies:
        with pymongo.MongoClient[dict[str, Any]](proxy.uri) as client:
            peers = client.admin.command({"tsproxy": "peers"})["peers"]
        if sum(bool(peer["keepsReaders"] and peer["linksBack"]) for peer in peers) != len(proxies) - 1:
            return False
    return True


@contextmanager
def _fleet(context: Context, mongod: Mongod, directory: Path, size: int) -> Iterator[Sequence[Proxy]]:
    with ExitStack() as stack:
        proxies = []
        for number in range(size):
            proxy = Proxy(directory / f"{size}-{number}", mongod.uri, context.settings.proxy_flags)
            stack.callback(proxy.stop)
            proxies.append(proxy.start())
        deadline = time.monotonic() + LINKED_SECONDS
        while not _are_linked(proxies):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{size} proxies are not linked after {LINKED_SECONDS:g} s")
            time.sleep(0.25)
        yield proxies


def measure(context: Context, mongod: Mongod, directory: Path, case: FleetCase, size: int) -> Mapping[str, float]:
    """One round on a fresh collection, with processes of its own."""
    settings, load = context.settings, case.load
    seconds = settings.seconds * (1 if settings.smoke else FACTOR)
    with _fleet(context, mongod, directory, size) as proxies, ExitStack() as stack:
        ports = [proxy.port for proxy in proxies] or [mongod.port]
        site = Site(mongod.port, mongod.pids, ports[0], [pid for proxy in proxies for pid in proxy.pids])
        stack.callback(site.direct.close)
        target = Target(PROXY if proxies else NATIVE, ports[0], time_series=True, through_proxy=bool(proxies))
        collection = stack.enter_context(fresh_collection(target, load.shape))
        fill(site, load, collection)
        window = Window(site)
        result = generator.run(
            Load(
                ports[0],
                insert_template(collection.database, collection.name, load.shape, 1, ordered=settings.ordered),
                more_ports=ports[1:],
                connections=load.connections,
                seconds=seconds,
                warmup_seconds=settings.warmup_seconds,
                series=load.series,
                sharing="shared" if case.is_shared else "partitioned",
                step_ms=load.step_ms,
                first_tick=load.rows,
                run=2,
                expect_n=1,
                account=site.pids(),
            )
        )
        stored = result.operations_total
        metrics = load_metrics(site, target, result) | window.per_thousand(stored)
        metrics["whole_mongod_cpu_us"] = metrics["mongod_cpu_us"]
        if proxies and not settings.smoke:
            metrics |= settle(site, collection, stored, earlier=load.rows * load.series, quiet_seconds=QUIET_SECONDS)
            metrics["whole_mongod_cpu_us"] += metrics["deferred_mongod_cpu_us"]
        else:
            metrics["rows_per_bucket"] = (stored + load.rows * load.series) / max(1, site.bucket_count(collection))
    return metrics


class Fleets:
    """F."""

    name = "F"

    def _chosen(self, context: Context) -> list[FleetCase]:
        return [case for case in CASES if context.settings.cases in case.name][: 1 if context.settings.smoke else None]

    def _sizes(self, context: Context) -> Sequence[int]:
        return (0, *(SIZES[:2] if context.settings.smoke else SIZES))

    def rounds(self, context: Context) -> int:
        """Samples to come."""
        return context.rounds(len(self._chosen(context)), len(self._sizes(context)))

    def run(self, context: Context) -> Iterator[Sample]:
        """All cases, each through fleets of all sizes in turns."""
        settings, sizes = context.settings, self._sizes(context)
        with tempfile.TemporaryDirectory(prefix="tsproxy-fleets-") as name, ExitStack() as stack:
            directory = Path(name)
            mongod = Mongod(directory / "mongod", settings.binary, settings.cache_gb, replica_set=settings.replica_set)
            stack.callback(mongod.stop)
            mongod.start()
            for case in self._chosen(context):
                for repeat in range(settings.repeat):
                    for size in sizes if repeat % 2 == 0 else reversed(sizes):
                        context.say(f"F {case.name} · {name_of(size)}")
                        work = partial(measure, context, mongod, directory, case, size)
                        yield attempt(self.name, case.name, name_of(size), repeat, work)
