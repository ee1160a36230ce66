"""Medians, spreads, ratios and what is drawn of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

from bench.flame import Frame
from bench.goals import GOALS, judge
from bench.plots import write_plots
from bench.profile import shares
from bench.results import Results, Sample, ratios
from bench.workloads import WORKLOADS


def _samples() -> Results:
    rates = {"native": (90.0, 100.0, 130.0), "proxy": (310.0, 300.0, 200.0)}
    return Results(
        {"repeat": 3},
        [
            Sample("W1", "iot 1c", target, repeat, {"rate": rate})
            for target, values in rates.items()
            for repeat, rate in enumerate(values)
        ],
    )


def test_a_summary_has_the_median_and_how_far_the_rounds_lie_apart() -> None:
    native, proxy = _samples().summaries()
    assert native.medians["rate"] == 100.0
    assert native.spreads["rate"] == 0.4
    assert proxy.medians["rate"] == 300.0


def test_ratios_are_over_native() -> None:
    (ratio,) = ratios(_samples().summaries())
    assert (ratio.target, ratio.reference, ratio.value) == ("proxy", "native", 3.0)


def test_a_failed_round_is_told_and_not_counted() -> None:
    results = _samples()
    results.samples.append(Sample("W1", "iot 1c", "proxy", 3, {}, "connection refused"))
    assert results.summaries()[1].medians["rate"] == 300.0
    assert [sample.error for sample in results.failed] == ["connection refused"]


def test_results_survive_their_json() -> None:
    results = _samples()
    assert Results.from_json(results.to_json()).samples == results.samples


def test_plots_are_well_formed(tmp_path: Path) -> None:
    (path,) = write_plots(_samples().summaries(), tmp_path)
    assert path.name == "w1-rate.svg"
    assert ET.parse(path).getroot().tag.endswith("svg")


def test_a_flame_graph_counts_callers_with_their_calls() -> None:
    root = Frame("all")
    root.add(("main", "parse <bytes>"), 3)
    root.add(("main", "write"), 1)
    assert root.calls["main"].samples == 4
    assert ET.fromstring(root.svg()).tag.endswith("svg")


def test_lines_of_a_function_are_put_together() -> None:
    own, total = shares(Counter({("main (a.py:1)", "f (b.py:5)"): 2, ("main (a.py:1)", "f (b.py:9)"): 1}))
    assert own == {"f (b.py)": 3}
    assert total == {"main (a.py)": 3, "f (b.py)": 3}


def test_a_goal_is_judged_by_the_ratio_of_medians() -> None:
    results = Results(
        {},
        [
            Sample("W1", "iot 128c own", "native", 0, {"rate": 100.0, "mongod_cpu_us": 100.0}),
            Sample("W1", "iot 128c own", "proxy", 0, {"rate": 300.0, "mongod_cpu_us": 30.0}),
        ],
    )
    verdicts = {verdict.goal.metric: verdict for verdict in judge(results.summaries())}
    assert verdicts["rate"].reached
    assert verdicts["mongod_cpu_us"].ratio == 0.3
    assert not verdicts["mongod_cpu_us"].reached


def test_every_goal_is_of_a_workload() -> None:
    assert {goal.workload for goal in GOALS} <= set(WORKLOADS)
