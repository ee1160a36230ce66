"""The limit of open files of the process: raised as far as is allowed, and compared with what the settings need."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

import structlog

from proxy.settings.table import Settings
from proxy.upstream.file_limit import clients_within, file_limit, files_for

log = structlog.get_logger(__name__)

REMEDY: Final = "raise it (LimitNOFILE, ulimit -n, --ulimit nofile), or lower max_connections"


class OpenFiles:
    """The limit of this process, which the ``workers`` that it starts inherit."""

    def __init__(self, limit: int, workers: int) -> None:
        self._limit = limit
        self._workers = workers
        self._seen = 0

    def follow(self, settings: Settings) -> None:
        """Warn if the limit is too low for the settings; after a reload, only if they need more than before."""
        wanted = needed(settings, self._workers)
        if wanted <= self._seen or self._limit == resource.RLIM_INFINITY:
            return
        self._seen = wanted
        if self._limit < wanted:
            log.warning(
                "the limit of open files is too low for max_connections",
                limit=self._limit,
                needed=wanted,
                consequence=f"each process accepts at most {clients_within(self._limit)} clients",
                remedy=REMEDY,
            )


def needed(settings: Settings, workers: int) -> int:
    """How many files one of ``workers`` processes may need at once."""
    return files_for(-(-settings.max_connections // workers))


def raised() -> int:
    """Raise the limit to the highest one that needs no privilege; returns the limit from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems allow less than they say.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return file_limit()
