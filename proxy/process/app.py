"""Starts and stops one proxy process.

Startup: logs, signals, the status listener, the embedded mongod (if no backend is set), the server. Shutdown: the
server drains its clients, then the mongod stops, then the status listener closes. SIGTERM and Ctrl-C have the same
effect; a second signal during the drain stops immediately. SIGHUP reloads the settings.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib import metadata

import structlog
import uvloop
from prometheus_client import CollectorRegistry

from catalog.errors import CommandError
from proxy.observe import logs
from proxy.observe.metrics import LIMITS, Metrics
from proxy.observe.process_metrics import ProcessMetrics
from proxy.observe.status import StatusServer
from proxy.observe.tasks import TaskSet
from proxy.observe.trace_numbers import TraceNumbers
from proxy.process.control import Control
from proxy.process.embedded import STOP_SECONDS, EmbeddedMongod, EmbeddedOptions, find_mongod
from proxy.process.exit_codes import cannot_listen
from proxy.process.last_resort import CLOSE_SECONDS, LEAVE_SECONDS, LastResort
from proxy.process.reloading import Reloading
from proxy.process.reserving import reserved
from proxy.process.serving import serve
from proxy.process.starting import changed, shown
from proxy.process.status_page import StatusPage
from proxy.process.traced import tracing_of
from proxy.process.unreachable import unreachable
from proxy.settings.config import Address, LoadedSettings, Settings, redact_uri

Say = Callable[[str], None]

log = structlog.get_logger(__name__)


def run(loaded: LoadedSettings, load: Callable[[], LoadedSettings], say: Say) -> None:
    """Serve until SIGTERM or Ctrl-C; ``load`` reads the settings again, ``say`` prints the lines for the user.

    Raises ``ConfigurationError`` for an address or directory that is not valid, ``BackendUnavailable`` or
    ``EmbeddedFailed`` if there is no backend.
    """
    settings = loaded.settings
    logs.configure(settings.log_level, settings.log_format)
    backend = redact_uri(settings.backend or "embedded")
    log.info(
        "starting", version=metadata.version("tsproxy"), pid=os.getpid(), backend=backend, settings=changed(settings)
    )
    for line in loaded.ignored:
        log.warning("setting ignored", reason=line)
    if loaded.injected:
        log.debug("variables of Kubernetes Services are not settings", names=list(loaded.injected))
    log.debug("all settings", settings=shown(settings))
    calm_garbage_collector()
    # Large merges run in a thread; the event loop must not wait five milliseconds, the default, for the interpreter.
    sys.setswitchinterval(0.0005)
    with LastResort() as last_resort, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_App(Reloading(loaded, load), say, last_resort).run())


def calm_garbage_collector() -> None:
    """Collect reference cycles rarely.

    Each insert creates a few dozen objects that live until its commit, so the default thresholds start a collection
    every few inserts. These find nothing, because nearly everything is freed by its reference count. A collection
    blocks the event loop while it checks the objects created since the previous ones: at most twice 10,000, which takes
    about five milliseconds. All objects are checked very rarely.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 0, 50_000)


class _App:
    def __init__(self, reloading: Reloading, say: Say, last_resort: LastResort) -> None:
        settings = reloading.settings
        self._control = Control(reloading, self._why_not_ready)
        self._say = say
        self._last_resort = last_resort
        self._stop = asyncio.Event()
        self._metrics_registry = CollectorRegistry()
        self._process_metrics = ProcessMetrics(self._metrics_registry)
        self._metrics = Metrics(self._metrics_registry, {name: getattr(settings, name) for name in LIMITS})
        self._metrics.is_ready = lambda: not self._why_not_ready()
        self._embedded: EmbeddedMongod | None = None
        self._trouble = "the proxy is starting"
        self._serves = False
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
        """As the function ``run``; a signal during startup stops it early and cleanly."""
        serving = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def on_signal(number: signal.Signals) -> None:
            # While clients are served, the event lets them finish. During startup, or at a second signal, stop at once.
            at_once = self._stop.is_set() or not self._serves
            grace_seconds = 0.0 if at_once else self._settings.shutdown_grace_seconds
            log.info("stopping", reason=number.name, grace_seconds=grace_seconds)
            self._trouble = "the proxy is stopping"
            self._stop.set()
            embedded_seconds = STOP_SECONDS if self._embedded is not None else 0.0
            self._last_resort.within(grace_seconds + embedded_seconds + CLOSE_SECONDS, exit_code=1)
            if at_once and serving is not None:
                serving.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal, number)
        loop.add_signal_handler(signal.SIGHUP, self._control.reloading.on_hangup)
        try:
            async with self._status(), self._reserved(), self._backend() as settings:
                tracing = tracing_of(self._settings, TraceNumbers(self._metrics_registry))
                await serve(
                    settings, self._metrics, self._stop, self._on_ready, self._on_waiting, self._control, tracing
                )
        except asyncio.CancelledError:
            if not self._stop.is_set():
                raise
        except CommandError as error:
            if self._settings.backend is None:
                raise
            raise unreachable(self._settings.backend, error) from None
        log.info("stopped")
        self._last_resort.within(LEAVE_SECONDS, exit_code=0)

    def _on_waiting(self, reason: str) -> None:
        if not self._stop.is_set():
            self._trouble = reason

    def _on_ready(self, address: Address) -> None:
        self._trouble = ""
        self._serves = True
        log.info("ready", listen=str(address), backend=redact_uri(self._settings.backend or "embedded"))
        if not logs.is_json():  # then a program reads what the process writes
            for line in welcome(self._settings, address, has_timeseries=not self._control.lacks):
                self._say(line)

    def _on_task_error(self, error: BaseException) -> None:
        self._metrics.invariant_violations += 1
        log.error("a task ended with an error", exc_info=error)

    def _why_not_ready(self) -> str:
        if self._trouble:
            return self._trouble
        if self._embedded is not None and (trouble := self._embedded.why_not_ready()):
            return trouble
        if trouble := self._control.why_turned_away():
            return trouble
        return "" if self._metrics.backend_up else "the backend does not answer"

    @asynccontextmanager
    async def _status(self) -> AsyncIterator[None]:
        address = self._settings.status_listen
        if address is None:
            yield
            return
        server = StatusServer(
            address,
            self._metrics_registry,
            self._why_not_ready,
            self._process_metrics.read,
            self._page.paths,
            self._control.remark,
        )
        try:
            await server.start()
        except OSError as error:
            raise cannot_listen("status_listen", address, error) from None
        recording = TaskSet(self._on_task_error)
        recording.spawn(self._page.run())
        try:
            yield
        finally:
            await recording.close()
            await server.stop()

    @asynccontextmanager
    async def _reserved(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for name in ("listen", "admin_listen"):
                address: Address | None = getattr(self._settings, name)
                if address is None:
                    continue
                try:
                    await stack.enter_async_context(reserved(address))
                except OSError as error:
                    raise cannot_listen(name, address, error) from None
            yield

    @asynccontextmanager
    async def _backend(self) -> AsyncIterator[Settings]:
        """The settings with a backend: the embedded mongod if none is set."""
        settings = self._settings
        if settings.backend is not None:
            yield settings
            return
        binary = find_mongod(settings.embedded_mongod)
        options = EmbeddedOptions(binary, settings.embedded_data_directory, settings.embedded_cache_size_gb)
        self._embedded = mongod = EmbeddedMongod(options)
        self._metrics.embedded_restarts = lambda: mongod.restarts
        await mongod.start()
        watch = TaskSet(self._on_task_error).spawn(mongod.watch())
        try:
            yield replace(settings, backend=mongod.uri)
        finally:
            await asyncio.shield(mongod.stop())
            await watch


def welcome(settings: Settings, address: Address, *, has_timeseries: bool = True) -> list[str]:
    """The lines printed at the terminal when the proxy is ready; ``has_timeseries``: whether the backend has them."""
    if settings.backend is not None:
        behind = redact_uri(settings.backend)
    else:
        behind = f"an embedded mongod with its data in {settings.embedded_data_directory}"
    lines = [
        "",
        f"tsproxy {metadata.version('tsproxy')} listens on {address}; backend: {behind}.",
        f'  connect:  mongosh "mongodb://{address.from_here}/weather"',
    ]
    if has_timeseries:
        lines += [
            '  then:     db.createCollection("observations", {timeseries: {timeField: "t", metaField: "station"}})',
            '            db.observations.insertOne({t: new Date(), station: "north", celsius: 12.5})',
        ]
    if settings.status_listen is not None:
        path = "metrics" if settings.status_page == "off" else ""
        lines.append(f"  watch:    http://{settings.status_listen.from_here}/{path}")
    return [*lines, "  stop:     Ctrl-C", ""]
