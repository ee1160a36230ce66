"""``make bench-smoke``: every kind of measurement of the bench once, briefly, without a look at the figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.workloads import WORKLOADS

ROOT = Path(__file__).parent.parent


@pytest.mark.timeout(300)
def test_every_workload_runs_against_every_target(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "bench", "--smoke", "--out", str(out), "--plots", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    samples = json.loads(out.read_text())["samples"]
    assert {sample["workload"] for sample in samples} == set(WORKLOADS)
    assert "proxy" in {sample["target"] for sample in samples}
    assert (tmp_path / "w1-rate.svg").exists()
