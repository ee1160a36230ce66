"""What another process has sent is over when the operations have ended that it had at first (W102)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from catalog.errors import CommandError
from proxy.backend.current_op import Activity
from proxy.peers import quietness as under_test
from proxy.peers.quietness import QUIET_LOOKS, QUIET_SECONDS, Quiet, until_over, until_quiet

ABSENT = Activity(is_connected=False)


def works(*operations: int) -> Activity:
    return Activity(True, frozenset(map(str, operations)))


class Backend:
    """Shows these activities, the last of them for ever; 0.1 s pass with each look."""

    def __init__(self, *shown: Activity | CommandError) -> None:
        self.shown = list(shown)
        self.now_seconds = 100.0
        self.looks = 0

    async def activity(self, name: str) -> Activity:
        self.looks += 1
        self.now_seconds += 0.1
        shown = self.shown.pop(0) if len(self.shown) > 1 else self.shown[0]
        if isinstance(shown, CommandError):
            raise shown
        return shown

    async def quiet(self, knows_seconds: float = -math.inf, *, is_fenced: bool = False) -> Quiet:
        return await until_quiet(
            self.activity, "tsproxy two", knows_seconds, lambda: self.now_seconds, is_fenced=is_fenced
        )


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "QUIET_PAUSE_SECONDS", 0)


async def test_who_has_no_connection_is_quiet() -> None:
    backend = Backend(works(1), ABSENT)
    assert await backend.quiet() is Quiet.ABSENT
    assert backend.looks == 2


async def test_who_does_nothing_is_quiet_after_some_looks() -> None:
    backend = Backend(works())
    assert await backend.quiet() is Quiet.QUIET
    assert backend.looks == QUIET_LOOKS


async def test_operations_are_waited_for_to_their_end_whatever_follows_them() -> None:
    """A process under load is never idle."""
    later: Iterable[Activity] = (works(3, number) for number in range(100, 130))
    backend = Backend(works(1), works(1, 2), works(2, 3), *later, works(200))
    assert await backend.quiet() is Quiet.QUIET
    assert backend.looks == QUIET_LOOKS + 31


async def test_what_is_sent_before_the_process_knows_is_waited_for() -> None:
    backend = Backend(*[works()] * 8, works(7), works(7), works(7), works(8), works(9))
    assert await backend.quiet(backend.now_seconds + 0.75) is Quiet.QUIET
    assert backend.shown == [works(9)]


@pytest.mark.parametrize("shown", [works(1), CommandError(6, "unreachable")])
async def test_what_does_not_end_or_is_not_known_is_told(shown: Activity | CommandError) -> None:
    backend = Backend(shown)
    began_seconds = backend.now_seconds
    assert await backend.quiet() is Quiet.NOT_YET
    assert QUIET_SECONDS <= backend.now_seconds - began_seconds < QUIET_SECONDS + 1


async def test_a_look_that_fails_is_no_look() -> None:
    backend = Backend(works(), CommandError(6, "unreachable"), works(), works(1), works())
    assert await backend.quiet() is Quiet.QUIET
    assert backend.looks == QUIET_LOOKS + 2


async def test_what_a_single_look_finds_is_waited_for_behind_fences() -> None:
    backend = Backend(works(1), works(1, 2), works(2))
    assert await backend.quiet(is_fenced=True) is Quiet.QUIET
    assert backend.looks == 3


async def test_commands_of_sessions_are_waited_for_to_their_end() -> None:
    shown: list[bool | CommandError] = [True, CommandError(6, "unreachable"), True, False, True]
    now_seconds = 100.0

    async def executes() -> bool:
        nonlocal now_seconds
        now_seconds += 0.1
        now = shown.pop(0) if len(shown) > 1 else shown[0]
        if isinstance(now, CommandError):
            raise now
        return now

    assert await until_over(executes, lambda: now_seconds)
    assert shown == [True]
    assert not await until_over(executes, lambda: now_seconds)
    assert now_seconds >= 100.0 + QUIET_SECONDS
