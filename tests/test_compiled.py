"""The unit tests of the modules that are compiled, on the compiled ones: mypyc checks types at run time.

Everywhere else unit tests run the source, and only tests that start a proxy run what users install.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.proxy import PROGRAM

ROOT = Path(__file__).parent.parent
ROOMS = (
    "catalog", "proxy/backend", "proxy/clients", "proxy/inserts", "proxy/readers", "proxy/reads", "proxy/relay",
    "proxy/request", "proxy/upstream", "proxy/wire",
)  # fmt: skip
REPLACES_PARTS = (
    "tests/unit/proxy/clients/test_ruled_creation.py",
    "tests/unit/proxy/inserts/test_ingest.py::test_a_bug_is_reported_and_told",
    "tests/unit/proxy/relay/test_plain_relay.py::test_connection_that_ended_just_now_is_told",
    "tests/unit/proxy/request/test_session.py",
)
"""These put something of their own into an object, which compiled objects do not allow or do not call."""
RUN = """
import sys
import pytest
# Before pytest puts the checkout first.
import catalog.catalog, proxy.clients.dispatch, rewrite.plan
assert catalog.catalog.__file__.endswith(".so") and proxy.clients.dispatch.__file__.endswith(".so")
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.timeout(300)
def test_unit_tests_pass_on_the_compiled_modules() -> None:
    paths = [f"tests/unit/{room}" for room in ROOMS]
    others = [f"--deselect={each}" for each in REPLACES_PARTS]
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN, "-q", "-x", "-p", "no:cacheprovider", *others, *paths],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((PROGRAM, str(ROOT)))},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
