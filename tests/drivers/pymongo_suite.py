"""PyMongo's own test suite against a mongod directly and through the proxy; what differs must be explained.

``python -m tests.drivers.pymongo_suite [standalone|replica_set] [sync|async] [TEST ...]``. The tests come with the
source distribution of the version that is installed. A test that passes directly must pass through the proxy or stand
in ``pymongo_exceptions.txt`` with its reason; an exception that nothing needs any more is reported too. Both runs go on
at the same time, each against a server of its own: most of the time the tests wait.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

import pymongo

from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK
from tests.support.proxy import ProxyProcess

EXCEPTIONS = Path(__file__).parent / "pymongo_exceptions.txt"
SECONDS_FOR_A_TEST = 120
HALVES = {
    "sync": ("default", ("test", "--ignore=test/asynchronous")),
    "async": ("default_async", ("test/asynchronous",)),
}
"""The suite's own marker, and where the tests are."""


def fetch(folder: Path) -> Path:
    """The unpacked source distribution of the installed PyMongo."""
    version = pymongo.version
    target = folder / f"pymongo-{version}"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "pymongo"]
        subprocess.run([*command, "--dest", str(folder), f"pymongo=={version}"], check=True)
        with tarfile.open(folder / f"pymongo-{version}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    return target


def run(suite: Path, port: int, report: Path, half: str, selected: Sequence[str]) -> dict[str, str]:
    """Outcome by test: ``passed``, ``failed`` or ``skipped``; what pytest says goes beside the report."""
    marker, everything = HALVES[half]
    # The sources are found before the installed driver; both are the same version.
    environment = {**os.environ, "DB_IP": LOOPBACK, "DB_PORT": str(port), "PYTHONPATH": str(suite)}
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", "-q", "-m", marker]
    command += ["--timeout", str(SECONDS_FOR_A_TEST), "--timeout-method", "signal", f"--junitxml={report}"]
    command += selected or everything
    with report.with_suffix(".log").open("w") as log:
        subprocess.run(command, cwd=suite, env=environment, check=False, stdout=log, stderr=subprocess.STDOUT)
    return outcomes(report)


def outcomes(report: Path) -> dict[str, str]:
    """From pytest's JUnit file."""
    found = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        tags = {child.tag for child in case}
        found[name] = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
    return found


def exceptions(topology: str) -> dict[str, str]:
    """Test → reason for this topology; lines are ``topology|any TEST # reason``, a TEST may have ``*``."""
    known = {}
    for line in EXCEPTIONS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            test, _, reason = line.partition(" # ")
            where, _, name = test.strip().partition(" ")
            if where in (topology, "any"):
                known[name] = reason.strip()
    return known


def explained(test: str, known: Mapping[str, str]) -> bool:
    """Whether an exception covers the test."""
    return any(fnmatchcase(test, name) for name in known)


def compare(
    direct: Mapping[str, str], proxied: Mapping[str, str], known: Mapping[str, str], *, skips_allowed: bool = False
) -> list[str]:
    """What passes directly, not through the proxy, and is not explained.

    In front of a replica set the proxy is a mongos: tests that are for something else skip themselves.
    """
    fine = ("passed", "skipped") if skips_allowed else ("passed",)
    return [
        f"{test}: {proxied.get(test, 'missing')}"
        for test, outcome in direct.items()
        if outcome == "passed" and proxied.get(test) not in fine and not explained(test, known)
    ]


def needless(direct: Mapping[str, str], proxied: Mapping[str, str], known: Mapping[str, str]) -> list[str]:
    """Exceptions whose tests all pass in both runs."""
    found = []
    for name in known:
        pairs = {(outcome, proxied.get(test)) for test, outcome in direct.items() if fnmatchcase(test, name)}
        if pairs == {("passed", "passed")}:
            found.append(name)
    return found


def main(arguments: Sequence[str]) -> int:
    """Run both and tell; the exit code is 1 when something is not explained."""
    topology, half, *selected = [*arguments, *("standalone", "sync")[len(arguments) :]]
    name = "rs0" if topology == "replica_set" else None
    drivers = Path(sys.prefix) / "drivers"
    suite = fetch(drivers)
    reports = [drivers / f"{topology}-{half}-{where}.xml" for where in ("direct", "proxied")]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        servers = [MongodProcess(place / where, replica_set=name) for where in ("direct", "proxied")]
        proxy = None
        try:
            for server in servers:
                server.start()
            proxy = ProxyProcess(place / "proxy", servers[1].uri).start()
            ports = (servers[0].port, proxy.port)
            with ThreadPoolExecutor() as both:
                sides = both.map(lambda port, report: run(suite, port, report, half, selected), ports, reports)
                direct, proxied = sides
        finally:
            if proxy is not None:
                proxy.stop()
            for server in servers:
                server.remove()
    known = exceptions(topology)
    unexplained = compare(direct, proxied, known, skips_allowed=name is not None)
    passed = [sum(outcome == "passed" for outcome in side.values()) for side in (direct, proxied)]
    print(
        f"{topology} {half}: {passed[0]} pass directly, {passed[1]} through the proxy, {len(unexplained)} unexplained"
    )
    print("".join(f"  {each}\n" for each in unexplained), end="")
    print("".join(f"  needless exception: {each}\n" for each in needless(direct, proxied, known)), end="")
    print(f"  in full: {reports[0].parent}/{topology}-{half}-*.log", flush=True)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
