"""Findings, their remedies, and the exit code that follows from them."""

from __future__ import annotations

import pytest

from proxy.process.doctor.finding import (
    Finding,
    Kind,
    advice,
    exit_code_of,
    mongosh,
    note,
    ok,
    on_database,
    setting,
    unreachable,
    warning,
    wrong_backend,
    wrong_setting,
)

FINE, SAID, WARNED = ok("fine"), note("said"), warning("warned")
LATER, SETTING, BACKEND = unreachable("later"), wrong_setting("setting"), wrong_backend("backend")


@pytest.mark.parametrize(
    ("findings", "code", "strict"),
    [
        ((), 0, 0),
        ((FINE, SAID), 0, 0),
        ((FINE, WARNED), 0, 3),
        ((LATER,), 1, 1),
        ((LATER, WARNED), 1, 3),
        ((LATER, BACKEND), 3, 3),
        ((BACKEND, SETTING, LATER), 2, 2),
    ],
)
def test_exit_code_is_that_of_the_most_urgent_problem(findings: tuple[Finding, ...], code: int, strict: int) -> None:
    assert exit_code_of(findings, strict=False) == code
    assert exit_code_of(findings, strict=True) == strict


def test_remedies_say_where_they_are_applied() -> None:
    assert [each.kind for each in (mongosh("a"), setting("b"), advice("c"))] == [*Kind]


def test_names_cannot_end_a_line_of_mongosh() -> None:
    line = on_database('a"); evil("', "getUser", "b\n")
    assert line == 'db.getSiblingDB("a\\"); evil(\\"").getUser("b\\n")'
