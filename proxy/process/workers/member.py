"""One worker process, as the supervisor sees it: started, told what to do, and gone."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from catalog.errors import CommandError
from proxy.observe.readings import Reading
from proxy.observe.tasks import TaskSet
from proxy.process.workers.channel import Channel, ChannelLost, Replier
from proxy.process.workers.summed_readings import NOTHING, reading_from
from proxy.process.workers.sums import Families

PROGRAM: Final = "proxy.process.workers.program"
ASK_SECONDS: Final = 2.0
"""Time for an answer about what the worker has at hand; a scraper waits for it."""
MOST_UNANSWERED: Final = 2
"""A worker that has not answered so many of these questions, one after the other, hangs."""
SILENT: Final = "the worker does not answer"


@dataclass(frozen=True, slots=True)
class State:
    """What a worker says of itself. ``trouble``: why it cannot serve clients, ``""`` if it can.

    ``remark``: what clients must do without. ``listen``: the address for clients, ``""`` before it listens. ``page``:
    what the status page shows besides numbers.
    """

    trouble: str = "the worker is starting"
    remark: str = ""
    listen: str = ""
    page: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a worker cannot serve: a line for each problem, and its exit code."""

    problems: tuple[str, ...]
    exit_code: int


class Member:
    """A worker, from ``start`` until its process has ended."""

    def __init__(
        self, number: int, changed: Callable[[], None], tasks: TaskSet, closed: Callable[[], None] = lambda: None
    ) -> None:
        """``changed`` is called when ``state`` is a new one, ``closed`` when it accepts no more clients."""
        self.number = number
        self._closed = closed
        self.state = State()
        self.failure: Failure | None = None
        self.is_leaving = False
        """Whether it was told to stop."""
        self.families = Families()
        self.reading: Reading = NOTHING
        self._unanswered = 0
        self._changed = changed
        self._tasks = tasks
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def order(self) -> tuple[bool, int]:
        """Sorts workers: by their numbers, those that are leaving last."""
        return self.is_leaving, self.number

    @property
    def is_ready(self) -> bool:
        """Whether it serves clients."""
        return not self.trouble

    @property
    def is_silent(self) -> bool:
        """Whether it hangs: it has served, and does not answer any more."""
        return self._unanswered >= MOST_UNANSWERED

    @property
    def trouble(self) -> str:
        """Why it cannot serve clients, ``""`` if it can."""
        return self.state.trouble or (SILENT if self.is_silent else "")

    async def start(self, descriptors: Sequence[int], answer: Replier) -> None:
        """Start the process, which inherits ``descriptors``; ``answer`` is for its questions.

        Raises ``OSError`` if it cannot be started.
        """
        ours, its = socket.socketpair()
        try:
            with its:
                ours.setblocking(False)
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", PROGRAM, str(its.fileno())),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(its.fileno(), *descriptors),
                    start_new_session=True,  # Ctrl-C is for the supervisor, which stops the workers
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                )
            self._channel = channel = Channel(answer, self._noticed, self._tasks)
            await asyncio.get_running_loop().create_unix_connection(lambda: channel, sock=ours)
        except BaseException:
            ours.close()
            self.kill()
            raise

    def _noticed(self, notice: str, fields: Mapping[str, Any]) -> None:
        match notice:
            case "state":
                self.state = State(**fields)
                self._changed()
            case "failed":
                self.failure = Failure(tuple(fields["problems"]), fields["exit_code"])
            case "closed":
                self._closed()
            case "last":
                self._read(fields)

    def _read(self, fields: Mapping[str, Any]) -> None:
        self.families = Families(fields["metrics"])
        self.reading = reading_from(fields["reading"])

    def ask(
        self, question: str, fields: Mapping[str, Any], seconds: float, is_hopeless: Callable[[], bool] = lambda: False
    ) -> Awaitable[Mapping[str, Any]]:
        """The answer of the worker, as ``Channel.ask``; raises ``CommandError`` and ``ChannelLost``."""
        if self._channel is None:
            raise ChannelLost("the process is starting")
        return self._channel.ask(question, fields, seconds, is_hopeless)

    async def look(self, question: str) -> None:
        """Ask for ``metrics`` or the ``reading``; what it has said last stays if it does not answer."""
        try:
            fields = await self.ask(question, {}, ASK_SECONDS)
        except (ChannelLost, CommandError):
            # Before it listens, it is known to be starting.
            self._unanswered += bool(self.state.listen)
            return
        self._unanswered = 0
        if question == "metrics":
            self.families = Families(fields["metrics"])
        else:
            self.reading = reading_from(fields["reading"])

    def tell(self, notice: str, fields: Mapping[str, Any]) -> None:
        """Send a notice."""
        if self._channel is not None:
            self._channel.tell(notice, fields)

    def stop(self, reason: str, *, others_accept: bool) -> None:
        """Let it stop; a second time, it does not wait for its clients.

        ``others_accept``: whether others accept the connections that wait.
        """
        if self.is_leaving or not self.state.listen:
            self._signal(signal.SIGTERM)
        else:
            self.tell("stop", {"reason": reason, "others_accept": others_accept})
        self.is_leaving = True

    def kill(self) -> None:
        """End it at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait until the process has ended; returns its exit code, negative for a signal."""
        assert self._process is not None
        assert self._channel is not None
        code = await self._process.wait()
        # What it has sent before may not be read yet.
        await self._channel.lost()
        return code
