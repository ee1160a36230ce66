"""Reloads the settings of a running proxy, on SIGHUP or on request.

The sources are read again: the file, and the flags and variables of the start. Settings with mistakes change nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from catalog.errors import CommandError
from proxy.admin.arguments import BAD_VALUE
from proxy.clients.tls import ListenerTls, TlsOptions
from proxy.process.starting import shown
from proxy.settings.config import ConfigurationError, LoadedSettings, redact_uri
from proxy.settings.reload import Reload, reload
from proxy.settings.table import Settings

log = structlog.get_logger(__name__)


class Reloading:
    """The settings in effect, and the components that follow them."""

    def __init__(self, loaded: LoadedSettings, load: Callable[[], LoadedSettings]) -> None:
        """``load`` reads the sources again; it raises ``ConfigurationError``."""
        self.loaded = loaded
        self._load = load
        self._followers: list[Callable[[Settings], None]] = []
        self._is_changed = False

    @property
    def settings(self) -> Settings:
        """The settings in effect."""
        return self.loaded.settings

    def follow(self, apply: Callable[[Settings], None]) -> None:
        """Call ``apply`` with the settings after every reload, and at once if there was one already."""
        self._followers.append(apply)
        if self._is_changed:
            apply(self.settings)

    def reload(self) -> Reload:
        """Read the settings again and apply those that can change; raises ``ConfigurationError`` with all mistakes."""
        try:
            read = self._load()
            done = reload(self.loaded, read)
            self._check_files(read.settings, done.loaded.settings)
        except ConfigurationError as error:
            problems = [redact_uri(problem) for problem in error.problems]
            log.error("settings not reloaded, keeping the previous ones", problems=problems)
            raise
        self.loaded = done.loaded
        self._is_changed = True
        for apply in self._followers:
            apply(self.settings)
        values = shown(self.settings)
        log.info("settings reloaded", changed={name: values[name] for name in done.changed})
        if done.left:
            log.warning("settings that require a restart were not changed", settings=list(done.left))
        return done

    def _check_files(self, read: Settings, next_: Settings) -> None:
        """Load the files of TLS that were read, and those that will be in use unless they are as before.

        Raises ``ConfigurationError``.
        """
        checked = {TlsOptions.of(next_)} - {TlsOptions.of(self.settings)} | {TlsOptions.of(read)}
        for options in checked:
            if options is not None:
                ListenerTls(options)

    def reload_for_administrator(self) -> dict[str, Any]:
        """As ``reload``; returns the reply to the admin command, or raises ``CommandError`` with all mistakes."""
        try:
            done = self.reload()
        except ConfigurationError as error:
            problems = [redact_uri(problem) for problem in error.problems]
            raise CommandError(
                BAD_VALUE, f"nothing was reloaded: {'; '.join(problems)}", details={"problems": problems}
            ) from None
        values = shown(done.loaded.settings)
        return {
            "changed": {name: values[name] for name in done.changed},
            "needRestart": list(done.left),
            "ignored": list(done.loaded.ignored),
        }

    def on_hangup(self) -> None:
        """As ``reload``, for the signal: mistakes are only logged."""
        try:
            self.reload()
        except ConfigurationError:
            return
        except Exception as error:
            log.error("settings not reloaded", exc_info=error)
