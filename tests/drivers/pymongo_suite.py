"""PyMongo's own test suite against a mongod directly and through the proxy; what differs must be explained.

``python -m tests.drivers.pymongo_suite [standalone|replica_set] [TEST ...]``. The tests come with the source
distribution of the version that is installed. A test that passes directly must pass through the proxy or stand in
``pymongo_exceptions.txt`` with its reason; one that stands there and passes is reported too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import pymongo

from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK
from tests.support.proxy import ProxyProcess

EXCEPTIONS = Path(__file__).parent / "pymongo_exceptions.txt"
SECONDS_FOR_A_TEST = 120


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


def run(suite: Path, port: int, report: Path, selected: Sequence[str]) -> dict[str, str]:
    """Outcome by test: ``passed``, ``failed`` or ``skipped``."""
    # The sources are found before the installed driver; both are the same version.
    environment = {**os.environ, "DB_IP": LOOPBACK, "DB_PORT": str(port), "PYTHONPATH": str(suite)}
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", "-q", "-m", "default"]
    command += ["--timeout", str(SECONDS_FOR_A_TEST), "--timeout-method", "signal", f"--junitxml={report}"]
    command += selected or ["test", "--ignore=test/asynchronous"]
    subprocess.run(command, cwd=suite, env=environment, check=False)
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


def main(arguments: Sequence[str]) -> int:
    """Run both and tell; the exit code is 1 when something is not explained."""
    topology = arguments[0] if arguments else "standalone"
    name = "rs0" if topology == "replica_set" else None
    suite = fetch(Path(sys.prefix) / "drivers")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        servers = [MongodProcess(place / where, replica_set=name) for where in ("direct", "proxied")]
        proxy = None
        try:
            for server in servers:
                server.start()
            proxy = ProxyProcess(place / "proxy", servers[1].uri).start()
            direct = run(suite, servers[0].port, place / "direct.xml", arguments[1:])
            proxied = run(suite, proxy.port, place / "proxied.xml", arguments[1:])
        finally:
            if proxy is not None:
                proxy.stop()
            for server in servers:
                server.remove()
    unexplained = compare(direct, proxied, exceptions(topology), skips_allowed=name is not None)
    passed = [sum(outcome == "passed" for outcome in side.values()) for side in (direct, proxied)]
    print(f"{topology}: {passed[0]} pass directly, {passed[1]} through the proxy, {len(unexplained)} unexplained")
    print("\n".join(unexplained))
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
