"""A worker: one of several processes that serve clients on sockets which the supervisor has opened.

Everything that the supervisor knows comes through one channel: the settings first, later admin commands and questions.
If the supervisor ends, the worker stops as at SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, Final

import structlog
import uvloop
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from catalog.errors import CommandError
from proxy.admin.administrator import Administrator
from proxy.admin.arguments import Call
from proxy.admin.handler import Action
from proxy.clients.connection_board import ConnectionBoard
from proxy.observe import logs
from proxy.observe.metrics import LIMITS, Metrics
from proxy.observe.process_metrics import ProcessMetrics
from proxy.observe.readings import read
from proxy.observe.status_document import Serving
from proxy.observe.tasks import TaskSet
from proxy.observe.trace_numbers import TraceNumbers
from proxy.process.control import Control, WorkerPlace
from proxy.process.exit_codes import ExitCode, exit_code_of
from proxy.process.interpreter import tune
from proxy.process.last_resort import LEAVE_SECONDS, LastResort
from proxy.process.reloading import Reloading
from proxy.process.serving import serve
from proxy.process.sockets import Sockets
from proxy.process.standard_streams import drop_unwritten
from proxy.process.stopping import Stopping
from proxy.process.traced import tracing_of
from proxy.process.unreachable import unreachable
from proxy.process.workers.channel import Channel
from proxy.process.workers.fan_out import STARTING
from proxy.process.workers.last_order import STATES
from proxy.process.workers.summed_readings import document_of
from proxy.settings.config import Address, ConfigurationError, LoadedSettings, Settings
from proxy.settings.transfer import loaded_from

log = structlog.get_logger(__name__)

BEGIN_SECONDS: Final = 60.0
STATE_SECONDS: Final = 0.25
"""Interval at which a worker looks whether its state has changed."""
FORWARD_SECONDS: Final = 24 * 3600.0
"""The supervisor answers admin commands in their own time, or ends."""


class Worker:
    """Serves clients until it is told to stop."""

    def __init__(self, channel: Channel, begin: Mapping[str, Any], last_resort: LastResort) -> None:
        """``begin``: what the supervisor says first."""
        loaded = loaded_from(begin)
        self._newest = loaded
        self._channel = channel
        self._number: int = begin["number"]
        self._held: Mapping[str, Any] | None = begin["held"]
        board = ConnectionBoard(begin["board"], self._number)
        membership = WorkerPlace(self._number, begin["of"], board, self, self._on_parts, self._on_closed)
        self._control = Control(Reloading(loaded, lambda: self._newest), self._why_not_ready, worker=membership)
        self._control.on_serving = self._on_page
        self.stopping = Stopping(last_resort, lambda: self._settings.shutdown_grace_seconds, self._on_stop)
        self._shown = _Shown(loaded.settings)
        self._shown.metrics.is_ready = lambda: not self._why_not_ready()
        clients, admin = (tuple(socket.socket(fileno=each) for each in group) for group in begin["sockets"])
        self._sockets = Sockets(clients, admin, lambda: self._others_accept)
        self._others_accept = False
        self._here: Action | None = None
        self._interrupt: Callable[[], None] = lambda: None
        self._control.reloading.follow(self._follow)

    @property
    def _settings(self) -> Settings:
        return self._control.reloading.settings

    async def run(self) -> None:
        """Serve clients; raises ``ConfigurationError`` and ``CommandError`` as ``serve`` does."""
        for number in (signal.SIGHUP, signal.SIGUSR2):
            asyncio.get_running_loop().add_signal_handler(number, lambda: None)  # they are for the supervisor
        self.stopping.follow_signals()
        self._shown.tasks.spawn(self._tell_state())
        settings, shown = self._settings, self._shown
        try:
            tracing = tracing_of(settings, TraceNumbers(shown.registry))
            await serve(
                settings,
                shown.metrics,
                self.stopping.event,
                self._on_ready,
                self._on_waiting,
                self._control,
                tracing,
                self._sockets,
            )
        except asyncio.CancelledError:
            if not self.stopping.event.is_set():
                raise
        except CommandError as error:
            raise unreachable(settings.backend or "", error) from None
        finally:
            await self._shown.tasks.close()
            self._channel.tell("last", {**self._metrics(), **self._reading()})

    # --- what the supervisor asks -----------------------------------------------------------------------------------

    async def answer(self, question: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer a question of the supervisor; raises ``CommandError``."""
        match question:
            case "metrics":
                await asyncio.to_thread(self._shown.process.read)
                return self._metrics()
            case "reading":
                return self._reading()
            case "reload":
                return self._reload(loaded_from(fields))
            case _:
                return await self._execute(fields)

    def noticed(self, notice: str, fields: Mapping[str, Any]) -> None:
        """The supervisor says that another worker accepts no more clients, or that this one shall stop."""
        if notice == "interrupt":
            self._interrupt()
        elif not self.stopping.event.is_set():
            self._others_accept = fields["others_accept"]
            self.stopping.stop(fields["reason"])

    def orphaned(self) -> None:
        """The supervisor has gone."""
        if not self.stopping.event.is_set():
            self.stopping.stop("the supervisor has ended")

    def _metrics(self) -> dict[str, Any]:
        return {"metrics": generate_latest(self._shown.registry).decode()}

    def _reading(self) -> dict[str, Any]:
        return {"reading": document_of(read(self._shown.metrics, asyncio.get_running_loop().time()))}

    def _reload(self, loaded: LoadedSettings) -> dict[str, Any]:
        self._newest = loaded
        self._control.reloading.on_hangup()
        return {}

    async def _execute(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._here is None and fields["name"] in STATES:
            # For when clients are served.
            self._held = None if fields["name"] == "resume" else fields
            return STARTING
        if self._here is None:
            raise CommandError(ExitCode.TRY_AGAIN, f"worker {self._number} is starting")
        administrator = Administrator.from_document(fields["administrator"])
        return await self._here(Call(fields["name"], fields["fields"], administrator))

    # --- proxy.admin.workers.Workers --------------------------------------------------------------------------------

    def describe(self) -> Mapping[str, Any]:
        membership = self._control.worker
        assert membership is not None
        return {"number": membership.number, "of": membership.of, "pid": os.getpid()}

    async def for_all(self, call: Call) -> Mapping[str, Any]:
        fields = {"name": call.name, "fields": call.fields, "administrator": call.administrator.as_document()}
        return await self._channel.ask("admin", fields, FORWARD_SECONDS)

    # --- state ------------------------------------------------------------------------------------------------------

    def _why_not_ready(self) -> str:
        trouble = self._shown.trouble or self._control.why_turned_away()
        return trouble or ("" if self._shown.metrics.backend_up else "the backend does not answer")

    def _on_parts(self, here: Action, interrupt: Callable[[], None]) -> None:
        self._here, self._interrupt = here, interrupt
        if self._held is not None:
            fields = {**self._held["fields"], "waitSeconds": 0}
            self._shown.tasks.spawn(self._hold({**self._held, "fields": fields}))

    async def _hold(self, fields: Mapping[str, Any]) -> None:
        """Pause or drain, as all workers were told before this one started."""
        await self._execute(fields)

    def _on_page(self, serving: Serving) -> None:
        self._shown.serving = serving

    def _on_ready(self, address: Address) -> None:
        self._shown.listen = str(address)
        self.stopping.serves = True

    def _on_waiting(self, reason: str) -> None:
        if not self.stopping.event.is_set():
            self._shown.trouble = reason

    def _on_stop(self) -> None:
        self._shown.trouble = "the proxy is stopping"

    def _on_closed(self) -> None:
        self._channel.tell("closed", {})

    def _follow(self, settings: Settings) -> None:
        logs.set_level(settings.log_level)
        self._shown.metrics.limits = {name: getattr(settings, name) for name in LIMITS}

    async def _tell_state(self) -> None:
        told: Mapping[str, Any] | None = None
        while True:
            state = {
                "trouble": self._why_not_ready(),
                "remark": self._control.remark(),
                "listen": self._shown.listen,
                "page": self._shown.page(),
            }
            if state != told:
                self._channel.tell("state", state)
                told = state
            await asyncio.sleep(STATE_SECONDS)


class _Shown:
    """What others see of the worker."""

    def __init__(self, settings: Settings) -> None:
        self.tasks = TaskSet(lambda error: log.error("a task ended with an error", exc_info=error))
        self.registry = CollectorRegistry()
        self.process = ProcessMetrics(self.registry)
        self.metrics = Metrics(self.registry, {name: getattr(settings, name) for name in LIMITS})
        # The supervisor asks for them, and does not say for whom.
        self.metrics.show_names(settings.status_page == "names")
        self.trouble = "the proxy is starting"
        self.listen = ""
        self.serving: Serving | None = None

    def page(self) -> dict[str, Any] | None:
        serving, catalog = self.serving, self.metrics.catalog
        if serving is None:
            return None
        state, held = serving.traffic()
        return {
            "backend": dict(serving.backend()),
            "answers": self.metrics.backend_up,
            "in_parts": catalog is not None and catalog.grows_in_parts(),
            "state": state,
            "held": held,
            "beside_others": serving.beside_others(),
            "lacks": serving.lacks,
        }


async def work(descriptor: int, last_resort: LastResort) -> int:
    """Serve clients as one worker; ``descriptor``: of the channel to the supervisor. Returns the exit code."""
    tasks = TaskSet(lambda error: log.error("a task ended with an error", exc_info=error))
    workers: list[Worker] = []

    async def answer(question: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        if not workers and fields.get("name") in STATES:
            # What it needs to know first is asked later.
            return STARTING
        if not workers:
            raise CommandError(ExitCode.TRY_AGAIN, "the worker is starting")
        return await workers[0].answer(question, fields)

    channel = Channel(
        answer,
        lambda notice, fields: workers[0].noticed(notice, fields) if workers else None,
        tasks,
        lambda: workers[0].orphaned() if workers else os._exit(ExitCode.TRY_AGAIN),
    )
    sock = socket.socket(fileno=descriptor)
    sock.setblocking(False)
    await asyncio.get_running_loop().create_unix_connection(lambda: channel, sock=sock)
    begin = await channel.ask("begin", {"version": metadata.version("tsproxy")}, BEGIN_SECONDS)
    logs.configure(begin["settings"]["log_level"], begin["settings"]["log_format"], begin["number"])
    problems: tuple[str, ...] = ()
    code = ExitCode.STOPPED
    try:
        workers.append(_made(channel, begin, last_resort))
        log.info("starting", version=metadata.version("tsproxy"), pid=os.getpid())
        await workers[0].run()
        last_resort.within(LEAVE_SECONDS, exit_code=0)
        log.info("stopped")
    except ConfigurationError as error:
        problems, code = error.problems, exit_code_of(error)
    except CommandError as error:
        problems, code = (error.message,), exit_code_of(error)
    if problems:
        channel.tell("failed", {"problems": list(problems), "exit_code": int(code)})
    channel.close()
    await channel.lost()
    return code


def _made(channel: Channel, begin: Mapping[str, Any], last_resort: LastResort) -> Worker:
    try:
        return Worker(channel, begin, last_resort)
    except ValueError as error:
        problem = (
            f"worker {begin['number']} is another version of tsproxy than the supervisor: {error}; restart tsproxy"
        )
        raise ConfigurationError([problem]) from None


def main(descriptor: int) -> None:
    """Run until the end, and exit."""
    tune()
    with LastResort() as last_resort, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(work(descriptor, last_resort))
    drop_unwritten()
    sys.exit(code)
