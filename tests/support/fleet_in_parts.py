"""Fleets that write while buckets grow in parts, and how many buckets are in parts."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pymongo

from catalog.parts import bucket_key
from tests.support.fleet import Fleet, start_again
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess

PATIENCE_SECONDS = 10
FLAGS = ("--server-selection-timeout-ms", str(PATIENCE_SECONDS * 1000))
SOME = 900
"""Measurements: more than the seven series of a fleet take in place, so that there are parts and joins."""
IN_PARTS = (*FLAGS, "--write-strategy", "in_parts")
DEADLINE_SECONDS = 30.0


def in_parts(client: pymongo.MongoClient[dict[str, Any]], database: str, collection: str = "c") -> Counter[Any]:
    """The buckets that are stored in more than one document, and the number of these."""
    stored = client[database][f"system.buckets.{collection}"].find({}, {"meta": 1})
    documents = Counter((bucket_key(each["_id"].binary), each["meta"]) for each in stored)
    return Counter({each: count for each, count in documents.items() if count > 1})


async def joined(client: pymongo.MongoClient[dict[str, Any]], database: str) -> None:
    """Wait until every bucket is one document."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while in_parts(client, database):  # noqa: ASYNC110 - only the backend knows
            await asyncio.sleep(0.1)


async def killed_while_in_parts(either: MongodProcess, proxy: ProxyProcess, name: str) -> Fleet:
    """A fleet that has written through a proxy that was killed with parts left, and through the next one."""
    fleet = Fleet(proxy.uri, name, erasers=1)

    async def events() -> None:
        await fleet.until(SOME)
        proxy.kill()
        with either.client() as client:
            assert in_parts(client, name)
        await start_again(proxy)
        await fleet.until(SOME)

    await fleet.run_during(events)
    return fleet
