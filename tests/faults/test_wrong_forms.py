"""A proxy that compresses and joins wrongly loses nothing: what is stored stays, and the mistake is counted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from bson.codec_options import CodecOptions

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess
from tests.support.wanted import SERVER

START = datetime(2024, 5, 1, tzinfo=UTC)
OPTIONS = {"timeField": "t", "metaField": "m", "granularity": "hours"}
VIOLATIONS = "tsproxy_invariant_violations_total"
SECRET = "what somebody stored"

GROWTHS = ("in_place", "in_parts") if SERVER >= (6,) else ("in_parts",)
"""W9: 5.0 has no compressed buckets, so only joins can be wrong there."""

WRONG_ROWS = """
def compress(document, time_field):
    changed = decode(document)
    changed["data"]["v"]["3"] = 1
    return kernel.compressed(encode(changed), time_field)

def merge(documents, *others):
    return parts.join(documents[1:], *others)
"""
WRONG_SUMMARIES = """
def hide(document):
    changed = decode(document)
    changed["control"]["max"]["v"] -= 1
    return encode(changed)

def compress(document, time_field):
    return kernel.compressed(hide(document), time_field)

def merge(*arguments):
    return hide(parts.join(*arguments))
"""
BROKEN = """
from catalog import kernel, parts
from catalog.bson.codec import decode, encode
from proxy.observe.compression_time import TimedForms
%s
TimedForms.__init__.__defaults__ = (compress, merge, *TimedForms.__init__.__defaults__[2:])
from proxy.process.cli import main
main()
"""


class BrokenProxy(ProxyProcess):
    """The program with an encoder and joins that are not right."""

    wrong = ""

    def command(self) -> list[str]:
        command = super().command()
        at = command.index("-m")
        return [*command[:at], "-c", BROKEN % self.wrong, *command[at + 2 :]]


@pytest.fixture(
    params=[
        pytest.param((growth, wrong), id=f"{growth}-{what}")
        for growth in GROWTHS
        for what, wrong in (("rows", WRONG_ROWS), ("summaries", WRONG_SUMMARIES))
    ]
)
def broken(request: pytest.FixtureRequest, mongod: MongodProcess, tmp_path: Path) -> Iterator[BrokenProxy]:
    growth, wrong = request.param
    proxy = BrokenProxy(tmp_path, mongod.uri, flags=["--write-strategy", growth])
    proxy.wrong = wrong
    yield proxy.start()
    proxy.stop()


def test_what_is_made_wrongly_is_not_written(mongod: MongodProcess, broken: BrokenProxy, db_name: str) -> None:
    sent: list[dict[str, Any]] = [
        {"t": START + timedelta(seconds=row), "_id": ObjectId(), "m": 0, "v": row * row % 977 + 2, "text": SECRET}
        for row in range(1010)
    ]
    with broken.client() as through, mongod.client() as direct:
        database = through[db_name]
        database.create_collection("x", timeseries=OPTIONS)
        for at in range(0, len(sent), 101):
            database["x"].insert_many(sent[at : at + 101])
        broken.wait_until(lambda: broken.metrics()[VIOLATIONS] >= 1)
        stored = direct[db_name]["system.buckets.x"]
        assert stored.count_documents({"control.version": 2}) == 0
        for client in (through, direct):
            read = client[db_name]["x"].with_options(CodecOptions(tz_aware=True)).find()
            assert list(read.sort("t", 1)) == sent
        log = broken.log
        assert "keeping the stored one" in log
        assert SECRET not in log
