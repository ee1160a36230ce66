"""What is left to do when a load ends: the proxy joins buckets that were written in parts.

It belongs to the cost of the measurements, and buckets are counted after it.
"""

from __future__ import annotations

import time

from bench.processes import cpu_seconds
from bench.targets import Collection, Site

QUIET_SECONDS = 4.0
"""Everything is joined if the number of buckets stays the same for this time."""
POLL_SECONDS = 0.25
LIMIT_SECONDS = 120.0

COMPRESSED_SECONDS = 30.0
"""All closed buckets are compressed if nothing changes for this time; the proxy waits for 20 s for late rows."""
COMPRESSED_LIMIT_SECONDS = 600.0


def settle(
    site: Site, collection: Collection, stored: int, *, earlier: int = 0, quiet_seconds: float = QUIET_SECONDS
) -> dict[str, float]:
    """Wait until the number of buckets stays for ``quiet_seconds``.

    CPU is in microseconds for each of the ``stored`` measurements; ``earlier`` ones were there before.
    What the mongod uses without anything to do, as it is at the end, is not counted.
    """
    each = 1e6 / max(1, stored)
    started = changed_at = time.monotonic()
    pids = {"mongod": site.mongod_pids, "proxy": site.proxy_pids}
    before = {name: cpu_seconds(each) for name, each in pids.items()}
    at_change = dict(before)
    buckets = site.bucket_count(collection)
    while time.monotonic() - changed_at < quiet_seconds and time.monotonic() - started < LIMIT_SECONDS:
        time.sleep(POLL_SECONDS)
        now = site.bucket_count(collection)
        if now != buckets:
            buckets, changed_at = now, time.monotonic()
            at_change = {name: cpu_seconds(each) for name, each in pids.items()}
    idle_seconds = max(POLL_SECONDS, time.monotonic() - changed_at)
    busy_seconds = changed_at - started
    metrics = {"rows_per_bucket": (stored + earlier) / max(1, buckets), "settling_s": busy_seconds}
    for name, members in pids.items():
        idle = (cpu_seconds(members) - at_change[name]) / idle_seconds
        metrics[f"deferred_{name}_cpu_us"] = max(0.0, at_change[name] - before[name] - idle * busy_seconds) * each
    return metrics


def wait_until_compressed(site: Site, database: str) -> None:
    """Wait until nothing more happens to the closed buckets of a database, as on a server that stores them for long."""
    deadline = time.monotonic() + COMPRESSED_LIMIT_SECONDS
    previous, since = -1.0, time.monotonic()
    while time.monotonic() < min(deadline, since + COMPRESSED_SECONDS):
        names = [name for name in site.direct[database].list_collection_names() if ".buckets." in name]
        now = sum(site.direct[database].command("dataSize", f"{database}.{name}")["size"] for name in names)
        if now != previous:
            previous, since = now, time.monotonic()
        time.sleep(1.0)
