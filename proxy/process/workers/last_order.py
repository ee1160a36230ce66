"""Whether clients are paused or drained: what was asked for last, of all workers.

A worker that hangs, starts or is replaced does not answer ``pause``, ``drain`` and ``resume``. It ends in the state
that was asked for last nevertheless: a new one begins in it, and all others are told what has become of the command.
What they are told arrives in this order, also at a worker that goes on later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from catalog.errors import CommandError
from proxy.observe.tasks import TaskSet
from proxy.process.workers.channel import ChannelLost
from proxy.process.workers.crew import Crew
from proxy.process.workers.fan_out import merged
from proxy.process.workers.member import ASK_SECONDS, Member

STATES: Final = frozenset({"pause", "drain", "resume"})
"""The admin commands that leave all workers in a state."""

Order = Mapping[str, Any]
"""An admin command: ``name``, ``fields`` and ``administrator``."""


class LastOrder:
    """The state that was asked for last."""

    def __init__(self, crew: Callable[[], Crew], tasks: TaskSet) -> None:
        self.held: Order | None = None
        """The command by which clients are paused or drained."""
        self._latest: Order | None = None
        self._has_changed = asyncio.Event()
        self._crew = crew
        self._tasks = tasks

    @property
    def is_pause(self) -> bool:
        """Whether commands of clients are held."""
        return self.held is not None and self.held["name"] == "pause"

    async def until_resumed(self) -> None:
        """Wait while clients are paused."""
        while self.is_pause:
            self._has_changed.clear()
            await self._has_changed.wait()

    async def execute(self, order: Order, seconds: float) -> dict[str, Any]:
        """Have all workers execute one of ``STATES``; returns their reply, or raises ``CommandError``.

        It takes effect if one worker has executed it. ``seconds``: the longest wait for an answer.
        """
        crew, resumes, before = self._crew(), order["name"] == "resume", self.held
        self._latest = order
        if not resumes:
            # For workers that begin meanwhile.
            self.held = order
        replies = await crew.replies("admin", order, seconds)
        # Otherwise another command has been asked for meanwhile, which sees to this.
        if self._latest is order:
            is_done = any(isinstance(reply, Mapping) for reply in replies.values())
            if is_done:
                self.held = None if resumes else order
            elif not resumes:
                self.held = before
            self._has_changed.set()
            refused = [each for each, reply in replies.items() if isinstance(reply, CommandError)]
            agree = {each for each, reply in replies.items() if isinstance(reply, Mapping)}
            others = [each for each in crew.everybody if each not in agree and (is_done or each not in refused)]
            resume = {"name": "resume", "fields": {"force": True}, "administrator": order["administrator"]}
            # Workers that have begun with a command that was refused must leave that state first.
            leave_first = self.held is None or not (is_done or resumes)
            self._tell(others, [*([resume] if leave_first else []), *([self.held] if self.held is not None else [])])
        return merged(list(replies.values()), any_suffices=resumes)

    def _tell(self, members: Iterable[Member], orders: Sequence[Order]) -> None:
        """Have workers execute what was decided; nobody waits for that."""
        for member in members:
            for order in orders:
                self._tasks.spawn(_told(member, {**order, "fields": {**order["fields"], "waitSeconds": 0}}))


async def _told(member: Member, order: Order) -> None:
    # One that has gone needs to know nothing, and one that hangs answers too late.
    with suppress(ChannelLost, CommandError):
        await member.ask("admin", order, ASK_SECONDS)
