"""All workers: starts them, replaces those that end, and stops them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

import structlog

from catalog.errors import CommandError
from proxy.clients.connection_board import leave_board, make_board
from proxy.observe.tasks import TaskSet
from proxy.process.exit_codes import ExitCode, ProcessFailed
from proxy.process.sockets import Sockets
from proxy.process.workers.channel import ChannelLost
from proxy.process.workers.fan_out import STARTING, NotReached, Reply, merged
from proxy.process.workers.member import SILENT, Failure, Member
from proxy.process.workers.restart_pauses import RestartPauses
from proxy.process.workers.summed_readings import sum_of, without_gauges
from proxy.process.workers.sums import Sums

log = structlog.get_logger(__name__)

START_SECONDS: Final = 60.0
"""Time in which a new worker must be ready to take the place of another."""
KILL_SECONDS: Final = 7.0
"""A worker that has not ended this long after the grace period is killed."""
FAN_OUT_SECONDS: Final = 60.0
"""Time for the answer of a worker to an admin command, in addition to the time that the command itself waits."""

Begin = Callable[[int], Mapping[str, Any]]
"""What a worker with this number needs to know first."""
Forward = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Has all workers execute the admin command that one of them has received."""


class Crew:
    """The workers by their numbers. Those that were told to stop and have not ended yet are counted, too."""

    def __init__(
        self,
        size: int,
        begin: Begin,
        forward: Forward,
        changed: Callable[[], None],
        tasks: TaskSet,
        grace_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``grace_seconds``: how long clients may take to leave.

        ``changed`` is called when a worker becomes ready, is not ready any more, or has failed.
        """
        self.size = size
        self.members: dict[int, Member] = {}
        """The workers that serve, or will."""
        self.restarts = 0
        self.is_replacing = False
        self.sums = Sums()
        """The metrics, with those of workers that have ended."""
        self.failure: Failure | None = None
        """Why no worker can serve."""
        self.board = make_board()
        self._begin = begin
        self._forward = forward
        self._changed = changed
        self._tasks = tasks
        self._lives = _Lives(size, grace_seconds)

    @property
    def everybody(self) -> Iterator[Member]:
        """All processes, also those that are leaving."""
        return iter(list(self._lives.running))

    @property
    def gone(self) -> Any:
        """The numbers of workers that have ended."""
        return self._lives.gone

    async def start(self, sockets: Sockets) -> None:
        """Start all workers; raises ``ProcessFailed`` if no process can be started."""
        self._lives.sockets = sockets
        for number in range(self.size):
            try:
                self.members[number] = await self.launch(number)
            except OSError as error:
                raise ProcessFailed([f"worker {number}: {cannot_start(error)}"], ExitCode.TRY_AGAIN) from None

    async def launch(self, number: int) -> Member:
        """Start a process for this number, beside the one that there may be; raises ``OSError``."""
        member = Member(number, self._ready_or_not, self._tasks, self._closed)
        sockets = self._lives.sockets
        descriptors = [*(each.fileno() for each in sockets), self.board] if sockets is not None else [self.board]

        async def answer(question: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
            if question == "begin":
                return self._begin(number)
            return await self._forward(fields)

        await member.start(descriptors, answer)
        self._lives.add(member)
        if self.is_stopping:
            # The others were told while this process was started.
            member.stop("the supervisor stops", others_accept=True)
        self._tasks.spawn(self._accompany(member))
        return member

    def _ready_or_not(self) -> None:
        self._lives.has_changed.set()
        self._changed()

    def _closed(self) -> None:
        """A worker accepts no more clients: drivers discard their pools, which have connections to it."""
        for member in self.everybody:
            if not member.is_leaving:
                member.tell("interrupt", {})

    async def replace_all(self, until_possible: Callable[[], Awaitable[None]]) -> bool:
        """Replace one worker after the other, each when the new one is ready; whether all were replaced.

        ``until_possible`` is waited for before each of them.
        """
        self.is_replacing = True
        try:
            for number in range(self.size):
                await until_possible()
                if self.is_stopping or not await self._replaced(number):
                    return False
        finally:
            self.is_replacing = False
        return True

    async def _replaced(self, number: int) -> bool:
        self._lives.is_replacing = True
        try:
            return await self._replace(number)
        finally:
            self._lives.is_replacing = False
            self._lives.has_changed.set()

    async def _replace(self, number: int) -> bool:
        old = self.members[number]
        try:
            new = await self.launch(number)
        except OSError as error:
            log.error("a new worker is not ready, keeping the old ones", number=number, reason=cannot_start(error))
            return False
        try:
            async with asyncio.timeout(START_SECONDS):
                while not new.is_ready and new in self._lives.running:
                    await self._lives.changed()
        except TimeoutError:
            pass
        if self._lives.is_stopping:
            # Both were told to stop.
            return False
        if new not in self._lives.running or not new.is_ready:
            reason = "; ".join(new.failure.problems) if new.failure is not None else new.state.trouble
            log.error("a new worker is not ready, keeping the old ones", number=number, reason=reason)
            new.stop("it was not ready in time", others_accept=True)
            return False
        self.members[number] = new
        old.stop("a new worker takes its place", others_accept=True)
        log.info("a new worker replaces another", number=number, pid=new.pid, previous_pid=old.pid)
        try:
            async with asyncio.timeout(self._lives.grace_seconds() + KILL_SECONDS):
                while old in self._lives.running:
                    await self._lives.changed()
        except TimeoutError:
            log.warning("a worker does not stop and is killed", number=number, pid=old.pid)
            old.kill()
        return True

    async def _accompany(self, member: Member) -> None:
        """Wait for the end of a worker, and replace it if that was not intended."""
        began_seconds = asyncio.get_running_loop().time()
        code = await member.ended()
        self._lives.ended(member)
        self.sums.ended(member.families)
        is_current = self.members.get(member.number) is member
        if is_current:
            leave_board(self.board, member.number)
        if member.is_leaving or self._lives.is_stopping or not is_current:
            return
        if member.failure is not None and not self._lives.has_served:
            # The reason would be the same for every worker.
            self.failure = self.failure or member.failure
            self._changed()
            return
        pause_seconds = self._lives.pauses[member.number].after(asyncio.get_running_loop().time() - began_seconds)
        problems = list(member.failure.problems) if member.failure is not None else []
        log.error(
            "a worker has ended and is replaced",
            number=member.number,
            pid=member.pid,
            **how_ended(code),
            **({"problems": problems} if problems else {}),
            restart_in_seconds=pause_seconds,
        )
        self.restarts += 1
        self._changed()
        await asyncio.sleep(pause_seconds)
        await self._relaunch(member)

    async def _relaunch(self, ended: Member) -> None:
        """Start a worker in the place of one that has ended, and try again while no process can be started."""
        number, obstacles = ended.number, self._lives.obstacles
        await self._until_replaced()
        # A restart of all workers may have replaced it.
        while not self.is_stopping and self.members[number] is ended:
            try:
                self.members[number] = await self.launch(number)
            except OSError as error:
                obstacles[number] = cannot_start(error)
            else:
                break
            pause_seconds = self._lives.pauses[number].after(0.0)
            reason = obstacles[number]
            log.error("a worker is not replaced yet", number=number, reason=reason, next_try_in_seconds=pause_seconds)
            self._changed()
            await asyncio.sleep(pause_seconds)
            await self._until_replaced()
        obstacles.pop(number, None)

    async def _until_replaced(self) -> None:
        """Wait while a worker is restarted."""
        while self._lives.is_replacing and not self.is_stopping:
            await self._lives.changed()

    def has_served(self) -> None:
        """All workers have been ready: from now on, what a worker fails with is not a reason to end all."""
        self._lives.has_served = True

    def why_not_ready(self) -> str:
        """Which workers cannot serve, and why; ``""`` if all can."""
        reasons: dict[str, list[int]] = {}
        for number in range(self.size):
            member = self.members.get(number)
            trouble = "the worker is starting" if member is None else member.trouble
            if member is not None and member not in self._lives.running:
                trouble = "the worker has ended and is replaced"
                if obstacle := self._lives.obstacles.get(number):
                    trouble = f"the worker has ended and is not replaced yet: {obstacle}"
            if trouble:
                reasons.setdefault(trouble, []).append(number)
        if len(reasons) == 1 and len(*reasons.values()) == self.size:
            return next(iter(reasons))
        return "; ".join(f"{_named(numbers)}: {trouble}" for trouble, numbers in reasons.items())

    async def replies(self, question: str, fields: Mapping[str, Any], seconds: float) -> dict[Member, Reply]:
        """What all workers with clients answer within this time, those that are leaving last.

        Those that end meanwhile, do not serve yet, or have stopped serving, are asked, too, and left out.
        """
        members = sorted(self._lives.running, key=Member.order)
        replies = await asyncio.gather(*(_asked(each, question, fields, seconds) for each in members))
        found = zip(members, replies, strict=True)
        return {member: reply for member, reply in found if member in self._lives.running and _counts(member, reply)}

    async def for_all(self, question: str, fields: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Ask as ``replies``, and merge the answers, of which one suffices; raises ``CommandError``."""
        return merged(list((await self.replies(question, fields, seconds)).values()), any_suffices=True)

    async def look(self, question: str) -> None:
        """Read the metrics, or the numbers of the status page, of all workers."""
        await asyncio.gather(*(each.look(question) for each in self.everybody))

    @property
    def is_stopping(self) -> bool:
        """Whether workers were told to stop."""
        return self._lives.is_stopping

    def stop(self, *, others_accept: bool) -> None:
        """Let all workers stop; a second time, they do not wait for their clients, and those that hang are killed.

        ``others_accept``: whether another program has the sockets, too.
        """
        is_again, self._lives.is_stopping = self._lives.is_stopping, True
        self._lives.has_changed.set()
        if not self._lives.running:
            self._lives.none_left.set()
        for member in self.everybody:
            if is_again and member.is_silent:
                member.kill()
            else:
                member.stop("the supervisor stops", others_accept=others_accept)

    async def all_ended(self, patience_seconds: float) -> None:
        """Wait until all have ended; kill those that have not by then."""
        try:
            async with asyncio.timeout(patience_seconds):
                await self._lives.none_left.wait()
        except TimeoutError:
            for member in self.everybody:
                log.warning("a worker does not stop and is killed", number=member.number, pid=member.pid)
                member.kill()
            await self._lives.none_left.wait()

    def close(self) -> None:
        """Free the shared memory."""
        os.close(self.board)


class _Lives:
    """The processes that run, and what is left of those that have ended."""

    def __init__(self, size: int, grace_seconds: Callable[[], float]) -> None:
        self.running: set[Member] = set()
        self.grace_seconds = grace_seconds
        self.has_changed = asyncio.Event()
        self.sockets: Sockets | None = None
        self.pauses = [RestartPauses() for _ in range(size)]
        self.obstacles: dict[int, str] = {}
        """Why no process can be started, by the numbers of workers that have ended."""
        self.is_stopping = False
        self.is_replacing = False
        """Whether a worker is being replaced now, in a restart of all."""
        self.has_served = False
        self.none_left = asyncio.Event()
        self.gone = sum_of([], 0.0)

    def add(self, member: Member) -> None:
        self.running.add(member)
        self.none_left.clear()

    async def changed(self) -> None:
        """Wait until a worker has another state, or has ended."""
        self.has_changed.clear()
        await self.has_changed.wait()

    def ended(self, member: Member) -> None:
        self.running.discard(member)
        self.has_changed.set()
        self.gone = without_gauges(sum_of([self.gone, member.reading], 0.0))
        if not self.running:
            self.none_left.set()


async def _asked(member: Member, question: str, fields: Mapping[str, Any], seconds: float) -> Reply:
    """The answer, for which nobody waits any more when it is known that the worker hangs."""

    def is_hopeless() -> bool:
        # One that has not said that it listens may be starting.
        return member.is_silent or not member.state.listen

    try:
        return await member.ask(question, fields, seconds, is_hopeless)
    except CommandError as error:
        return error
    except ChannelLost as error:
        return NotReached(member.number, member.pid, SILENT if member.is_silent else str(error))


def _counts(member: Member, reply: Reply) -> bool:
    """Whether a reply is that of a worker with clients, and says what they can expect."""
    if isinstance(reply, CommandError):
        return not member.is_leaving
    return reply != STARTING if isinstance(reply, Mapping) else bool(member.state.listen)


def cannot_start(error: OSError) -> str:
    """Why there is no process, for the log and ``/readyz``."""
    return f"cannot start a process: {error}"


def how_ended(code: int) -> dict[str, Any]:
    """The exit code, or the name of the signal that has ended a process, for the log."""
    if code >= 0:
        return {"exit_code": code}
    try:
        return {"signal": signal.Signals(-code).name}
    except ValueError:
        return {"signal": -code}


def _named(numbers: list[int]) -> str:
    return f"worker{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
