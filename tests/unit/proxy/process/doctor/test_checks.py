"""The table of checks, and what is said of indexes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from catalog.identity import User
from catalog.namespaces import Namespace
from proxy.process.doctor.checks import CHECKS, MOST_SHOWN, examination, indexes
from proxy.process.doctor.finding import Severity
from proxy.process.doctor.found import Account, Collections, Found, Member, SeriesIndexes, Target, Unknown
from proxy.settings.table import Settings

ACCOUNT = Account(User("tsproxy", "admin"), True, (("tsproxy", "admin"),))


def found(collections: Any = None, account: Any = ACCOUNT) -> Found:
    return Found(Settings(), Target("mongodb://db", ()), account=account, collections=collections)


def series(name: str, *, finds_series: bool = False, finds_latest: bool = False) -> SeriesIndexes:
    return SeriesIndexes(Namespace("app", name), "t", "m", finds_series, finds_latest)


def test_collections_with_their_indexes_are_ok() -> None:
    finding = indexes(found(Collections(2, (series("c", finds_series=True, finds_latest=True),))))
    assert finding is not None
    assert finding.severity is Severity.OK
    assert finding.text == "2 time-series collections"


def test_a_missing_index_is_a_note_with_the_command_that_makes_it() -> None:
    finding = indexes(found(Collections(1, (series('a"b', finds_series=True),))))
    assert finding is not None
    assert finding.severity is Severity.NOTE
    assert "latest measurements: 1, for reopening stored buckets: 0" in finding.text
    assert [each.text for each in finding.remedies] == [
        'db.getSiblingDB("app").getCollection("a\\"b").createIndex({"m": 1, "t": -1})'
    ]


def test_no_more_collections_are_named_than_can_be_read() -> None:
    many = Collections(40, tuple(series(f"c{number}") for number in range(40)), is_complete=False)
    finding = indexes(found(many))
    assert finding is not None
    assert len(finding.remedies) == MOST_SHOWN
    assert f"the first {MOST_SHOWN} are shown" in finding.text
    assert "there may be more" in finding.text


def test_an_account_that_may_not_see_indexes_is_told_the_privilege() -> None:
    finding = indexes(found(Collections(3, unknown=3)))
    assert finding is not None
    assert "the indexes of 3 are not known" in finding.text
    assert "listIndexes" in finding.remedies[0].text


def test_what_could_not_be_listed() -> None:
    finding = indexes(found(Unknown("refused")))
    assert finding is not None
    assert finding.severity is Severity.NOTE
    assert indexes(found()) is None


def test_every_check_is_either_made_or_named() -> None:
    silent = Found(Settings(), Target("mongodb://db", ()), (Member("db:1", reason="Connection refused"),))
    result = examination(silent)
    assert list(result.findings) == ["reachable", "open_files"]
    assert {*result.findings, *result.not_made} == {*CHECKS}


def test_every_check_is_documented() -> None:
    text = (Path(__file__).parents[5] / "docs" / "operating.md").read_text()
    table = text.split("## Examining a backend")[1].split("Each finding is")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [*CHECKS]
