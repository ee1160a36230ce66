"""The first process, if there are several: opens the sockets, starts the workers, and shows them as one proxy.

It checks the settings and starts the embedded mongod before any worker, and serves no clients itself. SIGTERM and
SIGHUP mean the same as for a proxy of one process.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog
import uvloop

from catalog.errors import CommandError
from proxy.clients.tls import ListenerTls, TlsOptions
from proxy.observe import logs
from proxy.observe.status import StatusServer
from proxy.observe.tasks import TaskSet
from proxy.process import early_signals
from proxy.process.activation import Launch
from proxy.process.embedding import Embedding
from proxy.process.exit_codes import ExitCode, ProcessFailed
from proxy.process.last_resort import LEAVE_SECONDS, LastResort
from proxy.process.reloading import Reloading
from proxy.process.sockets import Sockets, opened
from proxy.process.status_listener import listening
from proxy.process.stopping import Stopping
from proxy.process.welcoming import welcome
from proxy.process.workers.channel import ChannelLost
from proxy.process.workers.crew import FAN_OUT_SECONDS, KILL_SECONDS, Crew
from proxy.process.workers.last_order import STATES, LastOrder
from proxy.process.workers.overview import Overview
from proxy.settings.config import Address, LoadedSettings, Settings, redact_uri
from proxy.settings.transfer import document_of
from proxy.settings.worker_shares import share_of

log = structlog.get_logger(__name__)

RELOAD_SECONDS = 10.0


def supervise(reloading: Reloading, workers: int, say: Callable[[str], None], launch: Launch) -> None:
    """Run the workers until SIGTERM or Ctrl-C; ``say`` prints the lines for the user.

    Raises ``ConfigurationError`` and ``EmbeddedFailed`` as a proxy of one process does, and ``ProcessFailed`` with
    what workers have reported.
    """
    with LastResort() as last_resort, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(reloading, workers, say, last_resort, launch))


async def _run(
    reloading: Reloading, workers: int, say: Callable[[str], None], last_resort: LastResort, launch: Launch
) -> None:
    await Supervisor(reloading, workers, say, last_resort, launch).run()


class Supervisor:
    """Connects the workers with the world outside."""

    def __init__(
        self,
        reloading: Reloading,
        workers: int,
        say: Callable[[str], None],
        last_resort: LastResort,
        launch: Launch,
    ) -> None:
        self._launch = launch
        self._reloading = reloading
        self._say = say
        self._last_resort = last_resort
        self._embedding = Embedding()
        self._tasks = TaskSet(lambda error: log.error("a task ended with an error", exc_info=error))
        self._stopping = Stopping(
            last_resort,
            lambda: self._settings.shutdown_grace_seconds,
            self._on_stop,
            lambda: self._embedding.stop_seconds,
        )
        self._crew = Crew(
            workers,
            self._begin,
            self._forward,
            self._changed,
            self._tasks,
            lambda: self._settings.shutdown_grace_seconds,
        )
        self._overview = Overview(self._settings, self._crew, lambda: self._embedding.restarts)
        self._sockets: Sockets | None = None
        self._last_order = LastOrder(lambda: self._crew, self._tasks)
        self._backend: str | None = None
        self._reloading.follow(self._follow)

    @property
    def _settings(self) -> Settings:
        return self._reloading.settings

    async def run(self) -> None:
        """As ``supervise``; a signal during startup stops it early and cleanly."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_hangup)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, self._on_restart)
        self._stopping.follow_signals()
        early_signals.release()
        tls = TlsOptions.of(self._settings)
        if tls is not None:
            ListenerTls(tls)
        try:
            async with (
                listening(self._status(), self._overview.record, self._on_task_error),
                opened(self._settings, self._launch.given) as self._sockets,
                self._embedding.backend(self._settings, self._on_task_error) as settings,
            ):
                self._backend = settings.backend
                await self._serve(self._sockets)
        except asyncio.CancelledError:
            if not self._stopping.event.is_set():
                raise
        finally:
            self._crew.close()
        self._last_resort.within(LEAVE_SECONDS, exit_code=0)
        log.info("stopped")

    async def _serve(self, sockets: Sockets) -> None:
        try:
            if self._settings.status_listen is None:
                # Which otherwise runs beside the status listener: workers that hang must be noticed.
                self._tasks.keep(self._overview.record)
            await self._crew.start(sockets)
            await self._stopping.event.wait()
        finally:
            if not self._crew.is_stopping:
                self._crew.stop(others_accept=sockets.others_accept())
            # The workers have their own; nobody shall wait for a connection that nobody accepts.
            for each in sockets:
                each.close()
            await self._all_ended()
            await self._tasks.close()
        failure = self._crew.failure
        if failure is not None:
            raise ProcessFailed(failure.problems, ExitCode(failure.exit_code))

    async def _all_ended(self) -> None:
        grace_seconds = self._settings.shutdown_grace_seconds if self._stopping.serves else 0.0
        try:
            await asyncio.shield(self._crew.all_ended(grace_seconds + KILL_SECONDS))
        except asyncio.CancelledError:
            # A second signal, which the workers have got, too.
            await self._crew.all_ended(KILL_SECONDS)
            raise

    def _begin(self, number: int) -> Mapping[str, Any]:
        """What a worker needs to know first."""
        assert self._sockets is not None
        return {
            **self._share(number),
            "number": number,
            "of": self._crew.size,
            "board": self._crew.board,
            "held": self._last_order.held,
            "sockets": [[each.fileno() for each in group] for group in (self._sockets.clients, self._sockets.admin)],
        }

    def _share(self, number: int) -> dict[str, Any]:
        loaded = self._reloading.loaded
        share = share_of(loaded.settings, self._crew.size, number)
        document = document_of(LoadedSettings(share, loaded.origins, loaded.ignored))
        document["settings"]["backend"] = self._backend
        return document

    # --- status -----------------------------------------------------------------------------------------------------

    def _status(self) -> StatusServer | None:
        address = self._settings.status_listen
        if address is None:
            return None
        overview = self._overview
        return StatusServer(
            address,
            overview.registry,
            self._why_not_ready,
            overview.before_scrape,
            overview.paths,
            self._remark,
            sockets=self._launch.given.get("status_listen", ()),
            reuse_port=self._settings.reuse_port,
        )

    def _why_not_ready(self) -> str:
        if self._stopping.event.is_set():
            return "the proxy is stopping"
        return self._embedding.why_not_ready() or self._crew.why_not_ready()

    def _remark(self) -> str:
        remarks = dict.fromkeys(each.state.remark for each in self._crew.members.values())
        return "\n".join(filter(None, remarks))

    def _on_task_error(self, error: BaseException) -> None:
        log.error("a task ended with an error", exc_info=error)

    def _changed(self) -> None:
        """The state of a worker has changed."""
        if self._crew.failure is not None:
            self._stopping.event.set()
        if self._stopping.event.is_set() or self._stopping.serves:
            return
        if reason := self._crew.why_not_ready():
            self._launch.notifier.waits(reason)
            return
        self._stopping.serves = True
        self._crew.has_served()
        self._launch.notifier.ready()
        address = Address.parse(next(each.state.listen for each in self._crew.members.values()))
        log.info(
            "ready",
            listen=str(address),
            workers=self._crew.size,
            backend=redact_uri(self._settings.backend or "embedded"),
        )
        if not logs.is_json():
            lacks = any((each.state.page or {}).get("lacks") for each in self._crew.members.values())
            for line in welcome(self._settings, address, has_timeseries=not lacks):
                self._say(line)

    # --- signals and admin commands ---------------------------------------------------------------------------------

    def _on_stop(self) -> None:
        self._launch.notifier.stopping()
        self._crew.stop(others_accept=self._sockets is not None and self._sockets.others_accept())

    def _on_hangup(self) -> None:
        self._launch.notifier.reloading(self._reloading.on_hangup)

    def _on_restart(self) -> None:
        """Replace all workers, one after the other."""
        if not self._stopping.serves or self._stopping.event.is_set() or self._crew.is_replacing:
            log.warning("workers are not restarted: they are starting, restarting or stopping")
            return
        self._tasks.spawn(self._restart())

    async def _restart(self) -> None:
        log.info("restarting the workers, one after the other", workers=self._crew.size)
        if await self._crew.replace_all(self._until_resumed):
            log.info("all workers were restarted")

    async def _until_resumed(self) -> None:
        # A worker that stops refuses what it holds. Drivers retry that once, and the next one would refuse it again.
        if self._last_order.is_pause:
            log.info("the restart of workers waits until clients are resumed")
            await self._last_order.until_resumed()

    def _follow(self, settings: Settings) -> None:
        logs.set_level(settings.log_level)
        self._overview.follow(settings)
        # Also those that will take the place of others.
        for member in self._crew.everybody:
            if member.is_leaving:
                continue
            share = self._share(member.number)
            self._tasks.spawn(self._reload(member.number, member.ask("reload", share, RELOAD_SECONDS)))

    async def _reload(self, number: int, answer: Awaitable[Mapping[str, Any]]) -> None:
        try:
            await answer
        except (CommandError, ChannelLost) as error:
            log.error("a worker has not reloaded the settings", number=number, reason=str(error))

    async def _forward(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have all workers execute an admin command that one of them has received."""
        if fields["name"] == "reload":
            return self._reloading.reload_for_administrator()
        seconds = FAN_OUT_SECONDS + float(fields["fields"].get("waitSeconds") or self._settings.shutdown_grace_seconds)
        if fields["name"] in STATES:
            return await self._last_order.execute(fields, seconds)
        return await self._crew.for_all("admin", fields, seconds)
