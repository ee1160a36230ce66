"""Workload G: its cells, which of them are worse than native, its map, and a run that goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.grid_verdict import worse
from bench.heat_map import colour, write_heat_maps
from bench.results import Results, Sample
from bench.workloads.grid import CELLS

ROOT = Path(__file__).parent.parent


def results(cells: dict[str, tuple[float, float]]) -> Results:
    """A run with these ratios of the rate and of the CPU."""
    found = []
    for case, (rate, cpu) in cells.items():
        found.append(Sample("G", case, "native", 0, {"rate": 1000.0, "whole_mongod_cpu_us": 50.0}))
        found.append(Sample("G", case, "proxy", 0, {"rate": 1000 * rate, "whole_mongod_cpu_us": 50 * cpu}))
    return Results({}, found)


def test_there_is_a_cell_for_each_combination() -> None:
    assert len({cell.name for cell in CELLS}) == len(CELLS) == 2 * 4 * 5 * 3 * 3 * 2
    assert all(cell.rows < cell.bucket_rows for cell in CELLS), "a round begins with buckets that take rows"
    assert {cell.rows for cell in CELLS if cell.fill != "empty"} == {500, 950, 50, 95, 5, 9}


def test_a_cell_may_not_be_slower_or_more_expensive_than_native() -> None:
    run = results(
        {
            "iot x10 30s · 8c half steady": (0.9, 0.5),
            "iot x10 30s · 8c full steady": (1.1, 1.2),
            "iot x1 30s · 1c half steady": (0.75, 0.9),
            "iot x1 30s · 1c full steady": (0.65, 0.9),
        }
    )
    assert [(each.case, each.metric, each.bound) for each in worse(run.summaries())] == [
        ("iot x10 30s · 8c half steady", "rate", 1.0),
        ("iot x10 30s · 8c full steady", "whole_mongod_cpu_us", 1.0),
        ("iot x1 30s · 1c full steady", "rate", 0.7),
    ]


def test_the_map_has_a_cell_for_each_ratio(tmp_path: Path) -> None:
    run = results({"iot x10 30s · 8c half steady": (0.5, 0.5), "iot x10 100s · 8c half steady": (2.0, 1.0)})
    paths = write_heat_maps(run.summaries(), tmp_path)
    assert [path.name for path in paths] == ["g-rate.svg", "g-whole-mongod-cpu.svg"]
    rate = paths[0].read_text()
    for text in ("iot x10 30s", "iot x10 100s", "8c half steady", ">0.50<", ">2.00<"):
        assert text in rate
    assert colour(1) == "#ffffff"
    assert colour(0.01) == colour(0.25) == "#cb3434"
    assert colour(9) == "#2e8b57"


def test_a_run_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    """What was measured stays as it is; what failed or is missing is measured."""
    out = tmp_path / "g.json"
    command = [sys.executable, "-m", "bench", "--smoke", "--workloads", "G", "--cases", "iot x1 1s"]
    command += ["--out", str(out), "--plots", str(tmp_path)]

    def run(*more: str) -> list[dict[str, object]]:
        done = subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return list(json.loads(out.read_text())["samples"])

    first = run()
    assert [sample["target"] for sample in first] == ["native", "proxy"]
    raw = json.loads(out.read_text())
    raw["samples"][1]["error"] = "a reply was not as expected"
    out.write_text(json.dumps(raw))
    second = run("--resume")
    assert second[0] == first[0]
    assert second[1]["error"] == ""
    assert second[1]["metrics"] != first[1]["metrics"]
    refused = subprocess.run(
        [*command, "--resume", "--seconds", "3", "--repeat", "2", "--unordered"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "ordered" in refused.stderr
