"""What a measurement costs each member of a replica set, and the oplog, natively and through the proxy.

``python -m bench.replication_cost``: single inserts into three members on this machine. Processor time counts until
everything is joined, without what idle members use. Secondaries apply the oplog, so they see parts and joins, too.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import click
import pymongo

from bench.documents import CPU, IOT
from bench.generator import Load, Running
from bench.messages import DocumentShape, insert_template
from bench.processes import LOOPBACK, REPLICA_SET, Mongod, Proxy, Server, cpu_seconds

SHAPES: Final = {"iot": IOT, "cpu": CPU}
MEMBERS: Final = 3
IDLE_SECONDS: Final = 6.0
SETTLING_SECONDS: Final = 15.0
"""By then, everything is joined and replicated."""


class Member(Mongod):
    """One of several members, which are initiated together."""

    def start(self) -> Self:
        """Start it and wait until it answers."""
        return Server.start(self)


@dataclass(frozen=True, slots=True)
class Cost:
    """For one measurement: processor time of each member, and bytes of the oplog."""

    rate: float
    members_us: Sequence[float]
    oplog_bytes: float

    def __str__(self) -> str:
        first, *others = (f"{each:.0f}" for each in self.members_us)
        members = f"primary {first} µs · secondaries {' · '.join(others)} µs"
        return f"{self.rate:.0f} a second · {members} · oplog {self.oplog_bytes:.0f} bytes"


@contextmanager
def replica_set(directory: Path, cache_gb: float) -> Iterator[list[Member]]:
    """A set whose first member is the primary."""
    members = [Member(directory / f"member{number}", None, cache_gb, replica_set=True) for number in range(MEMBERS)]
    config = {
        "_id": REPLICA_SET,
        "members": [
            {"_id": number, "host": f"{LOOPBACK}:{member.port}", "priority": 0 if number else 1}
            for number, member in enumerate(members)
        ],
    }
    with ExitStack() as stack:
        for member in members:
            stack.callback(member.stop)
            member.start()
        with pymongo.MongoClient[dict[str, Any]](members[0].uri) as client:
            client.admin.command("replSetInitiate", config)
            while not client.admin.command("hello")["isWritablePrimary"]:
                time.sleep(0.05)
        yield members


def measure(members: Sequence[Member], load: Load, run_in: float) -> Cost:
    """Run a load for ``run_in`` seconds, so that buckets are open, and then measure it."""
    before = _used(members)
    time.sleep(IDLE_SECONDS)
    idle = [(now - start) / IDLE_SECONDS for now, start in zip(_used(members), before, strict=True)]
    if run_in:
        Running(replace(load, seconds=run_in, run=secrets.randbits(31))).result()
        time.sleep(SETTLING_SECONDS)
    with pymongo.MongoClient[dict[str, Any]](members[0].uri) as client:
        oplog, began = _oplog_bytes(client), time.monotonic()
        before = _used(members)
        result = Running(load).result()
        time.sleep(SETTLING_SECONDS)
        seconds = time.monotonic() - began
        each_us = 1e6 / result.operations_total
        members_us = [
            (now - start - rate * seconds) * each_us
            for now, start, rate in zip(_used(members), before, idle, strict=True)
        ]
        return Cost(result.rate, members_us, (_oplog_bytes(client) - oplog) / result.operations_total)


def _used(members: Sequence[Member]) -> list[float]:
    return [cpu_seconds(member.pids) for member in members]


def _oplog_bytes(client: pymongo.MongoClient[dict[str, Any]]) -> int:
    return int(client.local.command("collStats", "oplog.rs")["size"])


@click.command()
@click.option("--connections", default=128, show_default=True)
@click.option("--series", default=1000, show_default=True)
@click.option("--shape", type=click.Choice(list(SHAPES)), default="iot", show_default=True)
@click.option("--seconds", default=30.0, show_default=True)
@click.option("--run-in", default=10.0, show_default=True, help="Seconds of the same load before the measurement.")
@click.option("--interval-ms", default=0, show_default=True, help="One insert of a connection in this time.")
@click.option("--cache-gb", default=0.5, show_default=True, help="Of each member.")
@click.option("--proxy-flag", multiple=True)
def main(
    connections: int,
    series: int,
    shape: str,
    seconds: float,
    run_in: float,
    interval_ms: int,
    cache_gb: float,
    proxy_flag: Sequence[str],
) -> None:
    """Measure what single inserts cost the members of a replica set."""
    chosen: DocumentShape = SHAPES[shape]
    with tempfile.TemporaryDirectory(prefix="tsproxy-bench-") as directory, ExitStack() as stack:
        members = stack.enter_context(replica_set(Path(directory), cache_gb))
        uri = f"mongodb://{','.join(f'{LOOPBACK}:{member.port}' for member in members)}/?replicaSet={REPLICA_SET}"
        proxy = Proxy(Path(directory) / "proxy", uri, proxy_flag).start()
        stack.callback(proxy.stop)
        for name, port in (("native", members[0].port), ("proxy", proxy.port)):
            with pymongo.MongoClient[dict[str, Any]](members[0].uri) as client:
                fields = {"timeField": chosen.time_field, "metaField": chosen.meta_field}
                client[name].create_collection("measurements", timeseries=fields)
            template = insert_template(name, "measurements", chosen, 1)
            load = Load(
                port,
                template,
                connections=connections,
                seconds=seconds,
                series=series,
                run=secrets.randbits(31),
                interval_ms=interval_ms,
                expect_n=1,
            )
            click.echo(f"{name}: {measure(members, load, run_in)}")


if __name__ == "__main__":
    main()
