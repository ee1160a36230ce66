"""What is told of the account's rights, and when."""

from __future__ import annotations

import pytest

from catalog.errors import CommandError
from proxy.process.account_check import AccountCheck


async def test_changes_are_told_once() -> None:
    answers, told = [["find on system_buckets"], ["find on system_buckets"], []], []

    async def missing_rights() -> list[str]:
        return answers.pop(0)

    check = AccountCheck("tsproxy@admin", missing_rights, told.append)
    check.insist()
    await check.look()
    with pytest.raises(CommandError, match="tsproxy@admin lacks privileges: find on system_buckets"):
        check.insist()
    await check.look()
    await check.look()
    check.insist()
    assert [bool(trouble) for trouble in told] == [True, False]
