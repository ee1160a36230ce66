"""What is tuned, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, sys
from proxy.process.interpreter import begin, tune
begin()
assert not gc.isenabled()
tune()
assert gc.isenabled()
assert gc.get_threshold() == (10_000, 0, 50_000), gc.get_threshold()
assert gc.get_freeze_count() > 1_000
assert sys.getswitchinterval() < 0.001
"""


def test_collections_are_rare_and_threads_give_way_soon() -> None:
    assert subprocess.run([sys.executable, "-c", PROGRAM], timeout=60, check=False).returncode == 0
