"""What is told of the account's rights, and when."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from catalog.errors import CommandError
from proxy.process.account_check import AccountCheck


async def test_changes_are_told_once() -> None:
    answers, told = [["find on system_buckets"], ["find on system_buckets"], []], []

    async def missing_rights() -> list[str]:
        return answers.pop(0)

    check = AccountCheck("tsproxy@admin", missing_rights, told.append)
    await check.look()
    await check.look()
    await check.look()
    assert [bool(trouble) for trouble in told] == [True, False]


async def test_who_insists_gets_an_error_that_is_not_logged_as_well() -> None:
    answers: list[list[str]] = [["find on system_buckets"], []]
    told: list[str] = []

    async def missing_rights() -> list[str]:
        return answers.pop(0)

    check = AccountCheck("tsproxy@admin", missing_rights, told.append)
    with (
        capture_logs() as logged,
        pytest.raises(CommandError, match="tsproxy@admin lacks privileges: find on system_buckets"),
    ):
        await check.look(insists=True)
    await check.look(insists=True)
    assert (logged, told) == ([], [])
