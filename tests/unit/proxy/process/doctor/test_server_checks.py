"""What is said of servers, from their replies to ``hello`` and ``buildInfo``."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.process.doctor import server_checks as checks
from proxy.process.doctor.finding import Finding, Severity
from proxy.process.doctor.found import Found, Member, Target, Unknown
from proxy.process.exit_codes import ExitCode
from proxy.settings.table import Settings

ALONE = Member("db:1", {"isWritablePrimary": True}, ahead_seconds=0.0)
PRIMARY = Member("db:1", {"isWritablePrimary": True, "setName": "rs0"})
SECONDARY = Member("db:2", {"secondary": True, "setName": "rs0"})
SILENT = Member("db:3", reason="Connection refused")
DAY = 86_400


def found(*members: Member, target: Target | None = None, **known: Any) -> Found:
    return Found(Settings(), target or Target("mongodb://db", ()), members, **known)


def seen(finding: Finding | None) -> tuple[Severity, ExitCode]:
    assert finding is not None
    return finding.severity, finding.exit_code


OK, NOTE = (Severity.OK, ExitCode.STOPPED), (Severity.NOTE, ExitCode.STOPPED)
WARNING = (Severity.WARNING, ExitCode.STOPPED)
LATER = (Severity.PROBLEM, ExitCode.TRY_AGAIN)
SETTING, BACKEND = (Severity.PROBLEM, ExitCode.FIX_SETTINGS), (Severity.PROBLEM, ExitCode.FIX_BACKEND)


def test_servers_that_do_not_answer_are_named_with_the_reason() -> None:
    assert seen(checks.reachable(found(ALONE))) == OK
    some = checks.reachable(found(PRIMARY, SILENT))
    assert seen(some) == WARNING
    assert "db:3: Connection refused" in some.text
    assert seen(checks.reachable(found(SILENT))) == LATER


SET = Target("mongodb://db", (), set_name="rs0")
OTHER = Target("mongodb://db", (), set_name="rs1")
DIRECT = Target("mongodb://db", (), is_direct=True)


@pytest.mark.parametrize(
    ("target", "members", "expected", "part"),
    [
        (None, (ALONE,), OK, "standalone"),
        (SET, (PRIMARY, SECONDARY, SILENT), OK, "rs0, 3 members, primary db:1"),
        (SET, (PRIMARY,), OK, "rs0, 1 member, primary db:1"),
        (SET, (SECONDARY,), LATER, "no primary"),
        (SET, (ALONE,), SETTING, "not a member"),
        (OTHER, (PRIMARY,), SETTING, "replicaSet is rs1"),
        (DIRECT, (PRIMARY,), WARNING, "will not follow"),
        (DIRECT, (SECONDARY,), SETTING, "not the primary"),
        (None, (Member("db:1", {"isreplicaset": True}),), BACKEND, "not initiated"),
        (None, (Member("db:1", {"msg": "isdbgrid", "isWritablePrimary": True}),), WARNING, "untested"),
    ],
)
def test_topology(
    target: Target | None, members: tuple[Member, ...], expected: tuple[Severity, ExitCode], part: str
) -> None:
    finding = checks.topology(found(*members, target=target))
    assert seen(finding) == expected
    assert finding is not None
    assert part in finding.text
    assert (finding.remedies == ()) == (expected == OK)


def test_nothing_is_said_where_nothing_is_known() -> None:
    nothing = found(SILENT)
    assert checks.topology(nothing) is None
    assert checks.tls(nothing) is None
    assert checks.clocks(nothing) is None
    assert checks.version(nothing) is None
    assert checks.feature_compatibility(nothing) is None


def test_tls() -> None:
    tls = Target("mongodb://db", (), has_tls=True)
    secure = replace(ALONE, tls_version="TLSv1.3", certificate_ends_seconds=100.0 * DAY)
    assert seen(checks.tls(found(ALONE))) == WARNING
    assert seen(checks.tls(found(replace(ALONE, address="127.0.0.1:1")))) == OK
    assert seen(checks.tls(found(replace(ALONE, address="/tmp/mongodb-27017.sock:27017")))) == OK
    fresh = checks.tls(found(secure, target=tls, now_seconds=69.0 * DAY))
    assert seen(fresh) == OK
    assert fresh is not None
    assert "1970-04-11" in fresh.text
    assert seen(checks.tls(found(secure, target=tls, now_seconds=71.0 * DAY))) == WARNING
    assert seen(checks.tls(found(secure, target=replace(tls, verifies=False)))) == WARNING
    assert seen(checks.tls(found(replace(secure, certificate_ends_seconds=None), target=tls))) == OK


@pytest.mark.parametrize(
    ("ahead_seconds", "round_trip_seconds", "expected"),
    [(0.9, 0.0, OK), (-0.9, 0.0, OK), (1.1, 0.0, WARNING), (-1.1, 0.0, WARNING), (1.1, 0.4, OK), (3.0, 0.4, WARNING)],
)
def test_clocks_more_than_a_second_apart(
    ahead_seconds: float, round_trip_seconds: float, expected: tuple[Severity, ExitCode]
) -> None:
    server = replace(ALONE, ahead_seconds=ahead_seconds, round_trip_seconds=round_trip_seconds)
    assert seen(checks.clocks(found(ALONE, server))) == expected


def build(version: str, **further: Any) -> dict[str, Any]:
    return {"version": version, "versionArray": [*map(int, version.split(".")), 0], **further}


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (build("6.0.5"), OK),
        (build("5.0.4"), OK),
        (build("4.4.2"), OK),
        (build("7.0.1"), OK),
        (build("8.0.1"), WARNING),
        (build("6.1.0"), WARNING),
        ({}, WARNING),
        (Unknown("refused"), NOTE),
        (build("6.0.5", tsproxy={"version": "1"}), SETTING),
    ],
)
def test_version(reply: Any, expected: tuple[Severity, ExitCode]) -> None:
    assert seen(checks.version(found(ALONE, build=reply))) == expected


def test_supported_versions_are_those_of_the_document() -> None:
    text = (Path(__file__).parents[5] / "docs" / "compatibility.md").read_text()
    supported = re.findall(r"^\| MongoDB (\d)\.(\d)\S*[, ].*\| (?:reference|supported|relayed)", text, re.MULTILINE)
    named = {(int(major), int(minor)) for major, minor in supported}
    assert named == checks.TESTED


@pytest.mark.parametrize(
    ("answer", "expected"), [(True, OK), (False, WARNING), (Unknown("the backend does not answer"), NOTE)]
)
def test_whether_there_are_time_series_collections(answer: Any, expected: tuple[Severity, ExitCode]) -> None:
    assert seen(checks.timeseries(found(ALONE, has_timeseries=answer))) == expected
    assert checks.timeseries(found(ALONE)) is None


def test_feature_compatibility() -> None:
    six = {"build": build("6.0.5"), "feature_compatibility": "6.0"}
    assert seen(checks.feature_compatibility(found(ALONE, **six))) == OK
    behind = checks.feature_compatibility(found(ALONE, **{**six, "feature_compatibility": "5.0"}))
    assert seen(behind) == WARNING
    assert behind is not None
    assert behind.remedies[0].text == ('db.getSiblingDB("admin").runCommand({"setFeatureCompatibilityVersion": "6.0"})')
    before = checks.feature_compatibility(found(ALONE, build=build("5.0.4"), feature_compatibility="4.4"))
    assert before is not None
    assert "cannot be created" in before.text
    seven = checks.feature_compatibility(found(ALONE, build=build("7.0.1"), feature_compatibility="6.0"))
    assert seven is not None
    assert '"confirm": true' in seven.remedies[0].text
    refused = checks.feature_compatibility(found(ALONE, build=build("6.0.5"), feature_compatibility=Unknown("x", 13)))
    assert seen(refused) == NOTE
    assert refused is not None
    assert "getParameter" in refused.text
