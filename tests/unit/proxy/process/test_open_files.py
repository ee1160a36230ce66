"""What the settings need, and when there is a warning."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from proxy.process.open_files import OpenFiles, needed
from proxy.settings.table import Settings
from proxy.upstream.file_limit import OWN

PROGRAM = """
import resource
from proxy.process.open_files import raised
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 200), hard))
assert raised() == hard == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
"""


def test_limit_is_raised_to_the_hard_one() -> None:
    assert subprocess.run([sys.executable, "-c", PROGRAM], timeout=60, check=False).returncode == 0


def test_connections_are_divided_among_workers() -> None:
    assert needed(Settings(max_connections=101), 1) == 202 + OWN
    assert needed(Settings(max_connections=101), 2) == 102 + OWN


@pytest.mark.parametrize(("limit", "warns"), [(199 + OWN, True), (200 + OWN, False), (resource.RLIM_INFINITY, False)])
def test_warning(limit: int, warns: bool) -> None:
    with capture_logs() as logs:
        OpenFiles(limit, 1).follow(Settings(max_connections=100))
    assert [each["needed"] for each in logs] == ([200 + OWN] if warns else [])
    assert all(each["consequence"] == "each process accepts at most 99 clients" for each in logs)


def test_reload_warns_only_if_more_is_needed() -> None:
    files = OpenFiles(1, 1)
    with capture_logs() as logs:
        for number in (10, 10, 5, 20):
            files.follow(Settings(max_connections=number))
    assert [each["needed"] for each in logs] == [20 + OWN, 40 + OWN]
