"""Workload L: curves over time, from the generators and from the servers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import generator
from bench.curve_plots import PANELS, write_curves
from bench.documents import IOT
from bench.generator import Load, LoadResult
from bench.messages import insert_template
from bench.results import Sample
from bench.workloads.sustained import CASES, LongCase, latency_curve, rate_curve
from tests.support.mongod import MongodProcess

ROOT = Path(__file__).parent.parent
PYTHON = (sys.executable, "-m", "bench.loadgen_python")


@pytest.mark.parametrize("prefix", [None, PYTHON], ids=["compiled", "python"])
def test_a_generator_tells_of_each_interval(
    mongod: MongodProcess, db_name: str, prefix: tuple[str, ...] | None
) -> None:
    template = insert_template(db_name, "iot", IOT, 3)
    load = Load(mongod.port, template, seconds=1.1, warmup_seconds=0.2, curve_ms=250, expect_n=3)
    result = generator.Running(load, prefix).result()
    ends = [end for end, _, _ in result.curve]
    assert len(ends) == 4
    assert all(0.24 < later - end < 0.4 for end, later in zip([0.0, *ends], ends, strict=False))
    counted = sum(count for _, count, _ in result.curve)
    # The last tenth of a second is in no interval; on a busy machine, much may finish in it.
    assert 0.5 * result.measurements < counted <= result.measurements
    assert counted % 3 == 0
    assert all(p99_us >= result.latency_us["p50"] / 4 for _, _, p99_us in result.curve)


def result_with(curve: list[tuple[float, int, float]]) -> LoadResult:
    return LoadResult(1.0, 0, 0, 0, 0, 0, 0, 0.0, {}, {}, curve)


def test_rates_are_those_of_intervals_of_any_length() -> None:
    result = result_with([(1.0, 100, 500.0), (3.0, 100, 1500.0), (3.5, 0, 0.0)])
    assert rate_curve(result) == [(1.0, 100.0), (3.0, 50.0), (3.5, 0.0)]
    assert latency_curve(result) == [(1.0, 0.5), (3.0, 1.5)], "where nothing finished there is no latency"


def test_a_case_is_drawn_with_a_line_for_each_target(tmp_path: Path) -> None:
    curves = {"rate": [(1.0, 100.0), (2.0, 50.0)], "buckets": [(1.0, 3.0)]}
    samples = [
        Sample("L", "iot 128c 128s", "native", 0, {}, curves=curves),
        Sample("L", "iot 128c 128s", "proxy", 0, {}, curves={**curves, "dirty_mb": [(1.0, 2.0)]}),
        Sample("L", "iot 128c 128s", "proxy", 1, {}, curves={"p99_ms": [(1.0, 9.0)]}),
        Sample("W1", "iot 128c own", "proxy", 0, {"rate": 1.0}),
    ]
    (path,) = write_curves(samples, tmp_path)
    assert path.name == "l-iot-128c-128s.svg"
    drawn = path.read_text()
    assert drawn.count("<polyline") == 5
    assert PANELS["rate"] in drawn
    assert PANELS["p99_ms"] not in drawn, "the first round of each target is drawn"


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_every_long_load_has_a_file(case: LongCase, tmp_path: Path) -> None:
    (path,) = write_curves([Sample("L", case.name, "proxy", 0, {}, curves={"rate": [(1.0, 1.0)]})], tmp_path)
    assert path.parent == tmp_path
    assert path.exists()


def test_a_load_has_curves_of_both_targets(tmp_path: Path) -> None:
    out = tmp_path / "l.json"
    command = [
        sys.executable,
        "-m",
        "bench",
        "--smoke",
        "--workloads",
        "L",
        "--out",
        str(out),
        "--plots",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for sample in json.loads(out.read_text())["samples"]:
        assert set(PANELS) <= set(sample["curves"]), sample["target"]
        assert sample["metrics"]["series_p50_us"] > 0
        assert sample["metrics"]["lastpoint_p50_us"] > 0
