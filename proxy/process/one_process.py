"""A proxy of one process.

Startup: signals, the status listener, the embedded mongod (if no backend is set), the server. Shutdown: the
server drains its clients, then the mongod stops, then the status listener closes. SIGTERM and Ctrl-C have the same
effect; a second signal during the drain stops immediately. SIGHUP reloads the settings.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial

import structlog
import uvloop
from prometheus_client import CollectorRegistry

from catalog.errors import CommandError
from proxy.observe import logs
from proxy.observe.metrics import LIMITS, Metrics
from proxy.observe.process_metrics import ProcessMetrics
from proxy.observe.status import StatusServer
from proxy.observe.trace_numbers import TraceNumbers
from proxy.process import early_signals
from proxy.process.activation import Launch
from proxy.process.control import Control
from proxy.process.embedding import Embedding
from proxy.process.last_resort import LEAVE_SECONDS, LastResort
from proxy.process.reloading import Reloading
from proxy.process.serving import serve
from proxy.process.sockets import opened
from proxy.process.status_listener import listening
from proxy.process.status_page import StatusPage
from proxy.process.stopping import Stopping
from proxy.process.traced import tracing_of
from proxy.process.unreachable import unreachable
from proxy.process.welcoming import welcome
from proxy.settings.config import Address, Settings, redact_uri

Say = Callable[[str], None]

log = structlog.get_logger(__name__)


def serve_alone(reloading: Reloading, say: Say, launch: Launch) -> None:
    """Serve until SIGTERM or Ctrl-C; ``say`` prints the lines for the user.

    Raises ``ConfigurationError`` for an address or directory that is not valid, ``BackendUnavailable`` or
    ``EmbeddedFailed`` if there is no backend.
    """
    with LastResort() as last_resort, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Process(reloading, say, last_resort, launch).run())


def _no_workers() -> None:
    log.warning("SIGUSR2 ignored: it requires several workers")


class _Process:
    def __init__(self, reloading: Reloading, say: Say, last_resort: LastResort, launch: Launch) -> None:
        settings = reloading.settings
        self._launch = launch
        self._control = Control(reloading, self._why_not_ready)
        self._say = say
        self._last_resort = last_resort
        self._stopping = Stopping(
            last_resort,
            lambda: self._settings.shutdown_grace_seconds,
            self._on_stop,
            lambda: self._embedding.stop_seconds,
        )
        self._metrics_registry = CollectorRegistry()
        self._process_metrics = ProcessMetrics(self._metrics_registry)
        self._metrics = Metrics(self._metrics_registry, {name: getattr(settings, name) for name in LIMITS})
        self._metrics.is_ready = lambda: not self._why_not_ready()
        self._embedding = Embedding()
        self._metrics.embedded_restarts = lambda: self._embedding.restarts
        self._trouble = "the proxy is starting"
        self._page = StatusPage(settings, self._metrics, self._why_not_ready)
        self._control.on_serving = self._page.serves
        reloading.follow(self._follow)

    @property
    def _settings(self) -> Settings:
        return self._control.reloading.settings

    def _follow(self, settings: Settings) -> None:
        logs.set_level(settings.log_level)
        self._metrics.limits = {name: getattr(settings, name) for name in LIMITS}

    async def run(self) -> None:
        """As ``serve_alone``; a signal during startup stops it early and cleanly."""
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGHUP, self._launch.notifier.reloading, self._control.reloading.on_hangup
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, _no_workers)
        self._stopping.follow_signals()
        early_signals.release()
        try:
            async with (
                listening(self._status(), self._page.run, self._on_task_error),
                opened(self._settings, self._launch.given) as sockets,
                self._embedding.backend(self._settings, self._on_task_error) as settings,
            ):
                tracing = tracing_of(self._settings, TraceNumbers(self._metrics_registry))
                await serve(
                    settings,
                    self._metrics,
                    self._stopping.event,
                    self._on_ready,
                    self._on_waiting,
                    self._control,
                    tracing,
                    sockets,
                )
        except asyncio.CancelledError:
            if not self._stopping.event.is_set():
                raise
        except CommandError as error:
            if self._settings.backend is None:
                raise
            raise unreachable(self._settings.backend, error) from None
        self._last_resort.within(LEAVE_SECONDS, exit_code=0)
        log.info("stopped")

    def _on_stop(self) -> None:
        self._trouble = "the proxy is stopping"
        self._launch.notifier.stopping()

    def _on_waiting(self, reason: str) -> None:
        if not self._stopping.event.is_set():
            self._trouble = reason
            self._launch.notifier.waits(reason)

    def _on_ready(self, address: Address) -> None:
        self._stopping.serves = True
        self._launch.notifier.ready()
        backend = redact_uri(self._settings.backend or "embedded")
        if self._trouble:
            # Clients can connect, and get the backend's errors.
            self._launch.notifier.waits(self._trouble)
            log.warning("listening, but not ready", listen=str(address), backend=backend)
            return
        log.info("ready", listen=str(address), backend=backend)
        if not logs.is_json():  # then a program reads what the process writes
            for line in welcome(self._settings, address, has_timeseries=not self._control.lacks):
                self._say(line)

    def _on_task_error(self, error: BaseException) -> None:
        self._metrics.invariant_violations += 1
        log.error("a task ended with an error", exc_info=error)

    def _why_not_ready(self) -> str:
        if self._trouble:
            return self._trouble
        if trouble := self._embedding.why_not_ready():
            return trouble
        if trouble := self._control.why_turned_away():
            return trouble
        return "" if self._metrics.backend_up else "the backend does not answer"

    def _status(self) -> StatusServer | None:
        address = self._settings.status_listen
        if address is None:
            return None
        return StatusServer(
            address,
            self._metrics_registry,
            self._why_not_ready,
            partial(asyncio.to_thread, self._process_metrics.read),
            self._page.paths,
            self._control.remark,
            self._page.before_metrics,
            self._launch.given.get("status_listen", ()),
            reuse_port=self._settings.reuse_port,
        )
