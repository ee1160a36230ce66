"""What the program imports, and when: importing is most of what a start costs."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, started, tsproxy

REPORTED = {"PYTHONPROFILEIMPORTTIME": "1"}
"""The interpreter reports each import on standard error."""
HEADLINE = "import time: self [us]"
OTHER_COMMANDS = ("proxy.tools", "proxy.process.doctor", "multiprocessing")
NOT_FOR_SERVING = (*OTHER_COMMANDS, "proxy.process.workers", "proxy.process.embedded", "opentelemetry", "scramp")
"""``scramp`` is for a backend with logins, ``proxy.process.embedded`` for one of the proxy's own."""
NOT_FOR_SUPERVISING = (
    *OTHER_COMMANDS,
    *("proxy.process.serving", "proxy.process.assembly", "proxy.process.embedded"),
    *("proxy.clients.server", "proxy.inserts", "proxy.reads", "proxy.relay", "proxy.peers"),
    *("catalog.commit", "catalog.background", "scramp", "opentelemetry"),
)
NOT_FOR_HELP = (
    *("proxy.tools", "proxy.settings", "proxy.observe", "proxy.clients", "proxy.process.app", "catalog", "rewrite"),
    *("asyncio", "bson", "msgspec", "prometheus_client", "pymongo", "scramp", "structlog", "uvloop", "multiprocessing"),
)


def imported(report: str) -> set[str]:
    """The modules of a report."""
    return set(re.findall(r"^import time:[^|]*\|[^|]*\| +([\w.]+)$", report, re.MULTILINE))


def found(names: tuple[str, ...], modules: set[str]) -> set[str]:
    """The modules that are one of these, or inside one."""
    return {module for module in modules if any(f"{module}.".startswith(f"{name}.") for name in names)}


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_version_and_help_import_only_what_they_show(flag: str) -> None:
    done = tsproxy(flag, **REPORTED)
    modules = imported(done.stderr)
    assert "click" in modules
    assert found(NOT_FOR_HELP, modules) == set()


def test_serve_imports_what_requests_need_before_it_is_ready_and_nothing_else(
    mongod: MongodProcess, tmp_path: Path, db_name: str
) -> None:
    process = ProxyProcess(tmp_path, mongod.uri, environment=REPORTED)
    with started(process), process.client() as client:
        process.wait_until(lambda: process.log.count(" ready ") > 0)
        at_start = imported(process.log)
        collection = client[db_name].create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
        collection.insert_many([{"t": datetime(2024, 1, 1, tzinfo=UTC), "m": number} for number in range(3)])
        collection.insert_one({"t": datetime(2024, 1, 1, tzinfo=UTC), "m": 1})
        assert len(list(collection.find({"m": 1}))) == 2
        assert len(list(collection.aggregate([{"$group": {"_id": "$m"}}]))) == 3
        collection.delete_many({"m": 2})
        process.status("/metrics")
        assert found(NOT_FOR_SERVING, at_start) == set()
        assert imported(process.log) - at_start == set()


def test_the_supervisor_of_workers_imports_nothing_that_serves(mongod: MongodProcess, tmp_path: Path) -> None:
    process = ProxyProcess(tmp_path, mongod.uri, flags=["--workers", "2"], environment=REPORTED)
    with started(process):
        process.wait_until(lambda: process.log.count(" ready ") > 0)
        # The workers report to the same log afterwards, beginning with the same line.
        before, supervisor, after = process.log.partition("proxy.process.workers.supervisor\n")
        workers = after[after.index(HEADLINE) :]
        assert supervisor
        assert "proxy.clients.server" in imported(workers)
        assert found(NOT_FOR_SUPERVISING, imported(before + after.removesuffix(workers))) == set()
        assert found(OTHER_COMMANDS, imported(process.log)) == set()
