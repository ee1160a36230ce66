from __future__ import annotations

import json

import pytest

from proxy.tools.bench.report import document, rates, ratio, share, table
from proxy.tools.bench.running import BenchOptions, Measured
from proxy.tools.bench.shapes import shape_of
from proxy.tools.bench.sides import Stored
from proxy.tools.bench.tally import Tally

OPTIONS = BenchOptions(shape_of("iot"), "bench_tsproxy", rounds=2, seconds=1.0)


def round_of(rows: int, *, unknown: int = 0, share: float = 0.4) -> Tally:
    tally = Tally(seconds=1.0, rows=rows, check=rows, commands=rows, cpu_seconds=share, busiest_share=share)
    tally.unknown_rows = unknown
    tally.inserting.add(0.0015)
    return tally


def side(*rows: int, stored: Stored | None = None, **more: float) -> Measured:
    measured = Measured.nothing()
    measured.warm_up = round_of(50)
    for each in rows:
        tally = round_of(each, **more)  # type: ignore[arg-type]
        measured.rounds.append(tally)
        measured.whole.follow(tally)
    total = measured.acknowledged
    measured.stored = stored or Stored(total.rows, total.check, is_complete=True)
    return measured


def test_a_table_of_both_sides() -> None:
    text = table(OPTIONS, {"proxy": side(3_000, 2_000), "direct": side(1_000, 1_000)})
    lines = text.splitlines()
    assert lines[0].startswith("8 connections, 1 row in a command, 100 series, shape iot (")
    assert lines[0].endswith(" bytes), 2 rounds of 1 s")
    assert lines[2].split() == [
        *("rows/s", "p50", "ms", "p95", "ms", "p99", "ms", "errors", "client", "CPU"),
    ]
    assert lines[3].split()[:3] == ["proxy", "2,500", "1.52"]
    assert lines[4].split()[:2] == ["direct", "1,000"]
    assert "proxy / direct: 2.50 times as many rows per second (2.00 to 3.00 in single rounds)" in lines
    assert "proxy: all acknowledged rows are stored with their values: 5,050 acknowledged, 5,050 stored" in lines
    assert "bottleneck" not in text


def test_one_of_each_is_no_plural() -> None:
    single = BenchOptions(shape_of("iot"), "x", connections=1, batch_rows=2_000, rounds=1, seconds=1.0)
    line = table(single, {"proxy": side(1), "direct": side(1)}).splitlines()[0]
    assert line.startswith("1 connection, 2,000 rows in a command, ")
    assert line.endswith(", 1 round of 1 s")


def test_reads_have_columns_of_their_own() -> None:
    reading = BenchOptions(shape_of("iot"), "x", readers=2)
    measured = side(100)
    measured.whole.reads = 7
    measured.whole.reading.add(0.2)
    text = table(reading, {"proxy": measured, "direct": side(100)})
    assert "reads/s" in text
    assert text.splitlines()[3].split()[-4:] == ["7", "202", "202", "202"]
    assert text.splitlines()[4].split()[-4:] == ["0", "–", "–", "–"]


def test_a_client_that_is_the_bottleneck_is_named() -> None:
    text = table(OPTIONS, {"proxy": side(100, share=0.97), "direct": side(100)})
    assert [line[:40] for line in text.splitlines() if "bottleneck" in line] == [
        "proxy: the client is the bottleneck (97%"
    ]


def test_errors_and_missing_rows_are_named() -> None:
    lost, open_ = side(100, stored=Stored(149, 1, is_complete=False)), side(100, unknown=3)
    lost.whole.errors["AutoReconnect"] = 2
    text = table(OPTIONS, {"proxy": lost, "direct": open_})
    assert "proxy: STORED AND ACKNOWLEDGED ROWS DIFFER: 150 acknowledged, 149 stored" in text
    assert "proxy: errors: AutoReconnect: 2" in text
    assert "direct: all acknowledged rows are stored: 150 acknowledged, 3 of unknown outcome, 150 stored" in text


def test_without_rows_there_is_no_ratio() -> None:
    measured = {"proxy": side(100), "direct": side(0)}
    assert ratio(measured) is None
    assert "no ratio" in table(OPTIONS, measured)
    assert document(OPTIONS, measured, {"proxy": "a", "direct": "b"})["ratio"] is None


def test_all_figures_as_json() -> None:
    measured = {"proxy": side(3_000, 2_000), "direct": side(1_000, 1_000)}
    said = json.loads(json.dumps(document(OPTIONS, measured, {"proxy": "mongodb://p", "direct": "mongodb://d"})))
    assert said["ratio"] == {"median": 2.5, "least": 2.0, "greatest": 3.0}
    assert said["options"]["shape"] == "iot"
    found = said["sides"]["proxy"]
    assert (found["uri"], found["acknowledged_rows"], found["stored_rows"]) == ("mongodb://p", 5_050, 5_050)
    assert (found["values_agree"], found["is_complete"]) == (True, True)
    assert [each["rate"] for each in found["rounds"]] == rates(measured["proxy"]) == [3_000, 2_000]
    assert found["insert_ms"]["p50"] == pytest.approx(1.5, rel=0.03)
    assert share(Tally()) == 0
