"""``tsproxy import`` and ``tsproxy export`` as programs, directly and through a proxy, also when they are killed."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import json_util

from catalog.bson.raw import fields_of
from tests.support.mongod import MongodProcess
from tests.support.proxy import ProxyProcess, program, tsproxy

AT = dt.datetime(2024, 5, 18, tzinfo=dt.UTC)
FIELDS = ("--time-field", "t", "--meta-field", "m")


def rows(count: int, series: int = 100) -> list[dict[str, Any]]:
    """The series alternate."""
    return [
        {"_id": bson.ObjectId(), "t": AT + dt.timedelta(seconds=n), "m": {"host": n % series}, "v": n / 7, "n": n}
        for n in range(count)
    ]


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command, environment = program()
    root = str(Path(__file__).parent.parent.parent)
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=100, check=False, cwd=directory,
        env={**os.environ, "PYTHONPATH": root, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("through_proxy", [False, True])
@pytest.mark.parametrize("form", ["jsonl", "json.gz", "bson", "bson.gz", "collection"])
def test_every_form_directly_and_through_a_proxy(
    mongod: MongodProcess, proxy: ProxyProcess, db_name: str, tmp_path: Path, form: str, through_proxy: bool
) -> None:
    whole = rows(3_000)
    source = ["--from", f"{db_name}.plain"]
    if form == "collection":
        mongod.shared_client[db_name].plain.insert_many(whole)
    else:
        source = [f"rows.{form}"]
        content = b"".join(map(bson.encode, whole))
        if "json" in form:
            content = "\n".join(json_util.dumps(row) for row in whole).encode()
        (tmp_path / f"rows.{form}").write_bytes(gzip.compress(content) if form.endswith("gz") else content)
    uri = proxy.uri if through_proxy else mongod.uri
    ended = run(tmp_path, "import", *source, "--uri", uri, "--into", f"{db_name}.ts", *FIELDS, "--window-rows", "1000")
    assert ended.returncode == 0, ended.stderr
    assert "3000 rows imported" in ended.stdout
    assert "\r" not in ended.stderr, "no bar without a terminal"
    stored = mongod.shared_client[db_name].ts
    assert sorted((row["n"], row["_id"]) for row in stored.find()) == [(row["n"], row["_id"]) for row in whole]
    # Series were grouped: few buckets, although the series alternate.
    assert mongod.shared_client[db_name]["system.buckets.ts"].count_documents({}) <= 300
    again = run(tmp_path, "import", *source, "--uri", uri, "--into", f"{db_name}.ts", *FIELDS)
    assert "was imported completely" in again.stdout
    assert stored.count_documents({}) == 3_000


@pytest.mark.parametrize("through_proxy", [False, True])
def test_an_import_that_was_killed_stores_each_row_once(
    mongod: MongodProcess, proxy: ProxyProcess, db_name: str, tmp_path: Path, through_proxy: bool
) -> None:
    """Rows without _id get the same one in each attempt."""
    lines = [json_util.dumps({key: row[key] for key in ("t", "m", "n")}) for row in rows(30_000)]
    (tmp_path / "rows.json").write_text("\n".join(lines))
    uri = proxy.uri if through_proxy else mongod.uri
    command, environment = program()
    arguments = ["import", "rows.json", "--uri", uri, "--into", f"{db_name}.ts", *FIELDS]
    arguments += ["--window-rows", "10000", "--batch-rows", "500", "--connections", "2"]
    stored = mongod.shared_client[db_name].ts
    root = str(Path(__file__).parent.parent.parent)
    for least in (300, 13_000):
        child = subprocess.Popen(
            [*command, *arguments], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": root, **environment},
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while stored.estimated_document_count() < least and child.poll() is None:
            assert time.monotonic() < deadline
        child.send_signal(signal.SIGKILL)
        assert child.wait(10) == -signal.SIGKILL, "it ended before it could be killed"
    ended = run(tmp_path, *arguments)
    assert ended.returncode == 0, ended.stderr
    assert "continuing after line" in ended.stderr
    counted = Counter(row["n"] for row in stored.find({}, {"n": 1}))
    assert len(counted) == 30_000
    assert set(counted.values()) == {1}
    told = ended.stdout.split()
    assert int(told[told.index("were") - 1]) > 0, "rows that were stored before the kill are told"


def test_bad_rows_stop_or_are_rejected(mongod: MongodProcess, db_name: str, tmp_path: Path) -> None:
    good = [json_util.dumps(row) for row in rows(10)]
    (tmp_path / "rows.json").write_text("\n".join([*good[:4], '{"t": "no date"}', *good[4:], "nonsense"]))
    arguments = ["import", "rows.json", "--uri", mongod.uri, "--into", f"{db_name}.ts", *FIELDS]
    ended = run(tmp_path, *arguments)
    assert ended.returncode == 3
    assert "line 5: 't' must be present" in ended.stderr
    ended = run(tmp_path, *arguments, "--rejects", "bad.jsonl")
    assert ended.returncode == 0, ended.stderr
    assert "10 rows imported" in ended.stdout
    assert "2 rejected" in ended.stdout
    told = [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()]
    assert [each["line"] for each in told] == [5, 12]


@pytest.mark.parametrize("form", ["bson", "json.gz"])
def test_what_was_exported_and_imported_again_is_the_same_bit_for_bit(
    mongod: MongodProcess, proxy: ProxyProcess, db_name: str, tmp_path: Path, form: str
) -> None:
    """W6: also buckets that the proxy has written and compressed; every type that JSON tells."""
    values = [
        5, bson.Int64(5), 5.5, -0.0, float("inf"), "text", b"bytes", bson.Binary(b"x", 5), None, True, bson.ObjectId(),
        bson.Decimal128("1.10"), bson.Timestamp(1, 2), bson.Regex("a", "i"), {"b": 1, "a": [1, {"c": 2}]}, [],
        bson.MinKey(), bson.MaxKey(), bson.Code("f"), AT,
    ]  # fmt: skip
    with proxy.client() as client:
        series = client[db_name].create_collection("ts", timeseries={"timeField": "t", "metaField": "m"})
        series.insert_many(
            [{"t": AT + dt.timedelta(seconds=n), "m": n % 3, "_id": n, "v": values[n % 20]} for n in range(4_000)]
        )
    ended = run(tmp_path, "export", f"{db_name}.ts", f"all.{form}", "--uri", proxy.uri)
    assert ended.returncode == 0, ended.stderr
    assert "4000 measurements" in ended.stdout
    assert "Nothing has to be exported to go back" in ended.stdout
    # Its options come from the file beside it.
    ended = run(tmp_path, "import", f"all.{form}", "--uri", proxy.uri, "--into", f"{db_name}.copy")
    assert ended.returncode == 0, ended.stderr

    def stored(name: str) -> list[bytes]:
        # A native server without the proxy reads them.
        batches = mongod.shared_client[db_name][name].find_raw_batches()
        found = []
        for batch in batches:
            whole, position = bytes(batch), 0  # type: ignore[arg-type]
            while position < len(whole):
                end = position + int.from_bytes(whole[position : position + 4], "little")
                found.append(whole[position:end])
                position = end
        return sorted(found, key=lambda document: fields_of(document)[b"_id"])

    assert stored("copy") == stored("ts")
    assert len(stored("copy")) == 4_000


def test_an_export_replaces_no_file_unless_asked(mongod: MongodProcess, db_name: str, tmp_path: Path) -> None:
    mongod.shared_client[db_name].create_collection("ts", timeseries={"timeField": "t"})
    for flags, exit_code in (([], 0), ([], 2), (["--overwrite"], 0)):
        ended = run(tmp_path, "export", f"{db_name}.ts", "x.json", "--uri", mongod.uri, *flags)
        assert ended.returncode == exit_code, ended.stderr


def test_help_names_the_commands() -> None:
    assert {"import", "export"} <= set(tsproxy("--help").stdout.split())
