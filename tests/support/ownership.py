"""To which process sessions belong, without other processes: what a test says."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from catalog.commit.reclaiming import Reclaiming
from catalog.commit.restart_dedup import RestartDedup
from catalog.commit.statements import StatementLog
from catalog.commit.tenure import Search, SessionKey
from catalog.errors import CommandError
from tests.support.catalog_parts import ManualClock
from tests.support.earlier_rows import EarlierRows

WINDOW_SECONDS = 120.0


class OwnershipDouble:
    """Implements ``Ownership``: the others answer at once that the session is this process's, unless ``answers``."""

    def __init__(self, log: StatementLog) -> None:
        self.log = log
        self.now = 1000.0
        self.asked: list[int] = []
        """The transaction numbers."""
        self.answers: dict[int, CommandError] = {}
        self.written: dict[int, tuple[int, int]] = {}
        """Runs of statements that others have executed, by transaction number."""
        self.before_answer: Callable[[], None] = lambda: None

    def is_contested(self) -> bool:
        return self.log.contested > 0

    def now_seconds(self) -> float:
        return self.now

    def ask(self, client: SessionKey, number: int, go_on: Callable[[CommandError | None], None]) -> None:
        self.asked.append(number)
        self.before_answer()
        if (error := self.answers.get(number)) is not None:
            go_on(error)
            return
        try:
            transaction = self.log.transaction(client, number)
        except CommandError as refused:
            go_on(refused)
            return
        if (run := self.written.get(number)) is not None:
            transaction.learn([run], [], is_native=False, is_sought=False)
        transaction.take(self.now, Search.NONE)
        go_on(None)

    def contest(self) -> None:
        """Others may have executed whatever is in progress."""
        self.log.begin_generation()
        self.log.contest_all(self.now)


def not_shared() -> Reclaiming:
    """Without other processes."""

    def spawn(work: Coroutine[Any, Any, None]) -> None:
        work.close()

    return Reclaiming(RestartDedup(EarlierRows(), ManualClock(), WINDOW_SECONDS, 1.0, spawn))
