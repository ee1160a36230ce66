"""What is told of the account's rights, and when."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from catalog.errors import CommandError
from proxy.backend.account_login import NotLoggedIn
from proxy.process.account_check import LOOK_AGAIN_SECONDS, AccountCheck


async def test_changes_are_told_once() -> None:
    answers, told = [["find on system_buckets"], ["find on system_buckets"], []], []

    async def missing_rights() -> list[str]:
        return answers.pop(0)

    check = AccountCheck("tsproxy@admin", missing_rights, asyncio.Event(), told.append)
    await check.look()
    await check.look()
    await check.look()
    assert [bool(trouble) for trouble in told] == [True, False]


async def test_who_insists_gets_an_error_that_is_not_logged_as_well() -> None:
    answers: list[list[str]] = [["find on system_buckets"], []]
    told: list[str] = []

    async def missing_rights() -> list[str]:
        return answers.pop(0)

    check = AccountCheck("tsproxy@admin", missing_rights, asyncio.Event(), told.append)
    with (
        capture_logs() as logged,
        pytest.raises(CommandError, match="tsproxy@admin lacks privileges: find on system_buckets"),
    ):
        await check.look(insists=True)
    await check.look(insists=True)
    assert (logged, told) == ([], [])


async def test_an_account_that_is_not_logged_in_lacks_no_privileges() -> None:
    told: list[str] = []

    async def missing_rights() -> list[str]:
        raise NotLoggedIn(13, "not logged in any more")

    await AccountCheck("tsproxy@admin", missing_rights, asyncio.Event(), told.append).look()
    assert told == ["not logged in any more (account tsproxy@admin)"]


async def test_a_refused_command_makes_the_next_look_early() -> None:
    looked, doubted = asyncio.Event(), asyncio.Event()

    async def missing_rights() -> list[str]:
        looked.set()
        return []

    watching = asyncio.create_task(AccountCheck("a", missing_rights, doubted, lambda _: None).watch())
    doubted.set()
    async with asyncio.timeout(LOOK_AGAIN_SECONDS * 3):
        await looked.wait()
    assert not doubted.is_set()
    watching.cancel()
