"""Starts the proxy: as one process (``proxy.process.one_process``), or as several (``proxy.process.workers``)."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import metadata

import structlog

from proxy.observe import logs
from proxy.process.activation import Launch, with_addresses
from proxy.process.interpreter import tune
from proxy.process.open_files import OpenFiles, raised
from proxy.process.reloading import Reloading
from proxy.process.starting import changed, shown
from proxy.settings.config import LoadedSettings, redact_uri
from proxy.settings.worker_shares import number_of_workers, usable_cores

log = structlog.get_logger(__name__)


def run(loaded: LoadedSettings, load: Callable[[], LoadedSettings], say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; ``load`` reads the settings again, ``say`` prints the lines for the user.

    Raises ``ConfigurationError`` for an address or directory that is not valid, ``BackendUnavailable`` or
    ``EmbeddedFailed`` if there is no backend.
    """
    launch = Launch.of(os.environ)
    loaded = with_addresses(loaded, launch.given)
    settings = loaded.settings
    logs.configure(settings.log_level, settings.log_format)
    backend = redact_uri(settings.backend or "embedded")
    log.info(
        "starting", version=metadata.version("tsproxy"), pid=os.getpid(), backend=backend, settings=changed(loaded)
    )
    for line in loaded.ignored:
        log.warning("setting ignored", reason=line)
    if launch.ignored:
        log.warning("sockets of the service manager ignored", reason=launch.ignored)
    if loaded.injected:
        log.debug("variables of Kubernetes Services are not settings", names=list(loaded.injected))
    log.debug("all settings", settings=shown(settings))
    reloading = Reloading(loaded, lambda: with_addresses(load(), launch.given))
    workers = number_of_workers(settings, usable_cores)
    open_files = OpenFiles(raised(), workers)
    open_files.follow(settings)
    reloading.follow(open_files.follow)
    # What the other way needs is not imported. Requests need all of what is: nothing is imported for the first of them.
    if workers > 1:
        from proxy.process.workers.supervisor import supervise

        tune()
        supervise(reloading, workers, say, launch)
    else:
        from proxy.process.one_process import serve_alone

        tune()
        serve_alone(reloading, say, launch)
