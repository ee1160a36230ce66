"""The embedded mongod of this process, if no backend is set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from proxy.observe.tasks import TaskSet
from proxy.settings.table import Settings

if TYPE_CHECKING:
    from proxy.process.embedded import EmbeddedMongod


class Embedding:
    """Starts the mongod and stops it; without one, it has nothing to do."""

    def __init__(self) -> None:
        self._mongod: EmbeddedMongod | None = None

    @property
    def restarts(self) -> int:
        """How often the mongod was started again."""
        return 0 if self._mongod is None else self._mongod.restarts

    @property
    def stop_seconds(self) -> float:
        """Maximum time that its stop takes."""
        return 0.0 if self._mongod is None else self._mongod.stop_seconds

    def why_not_ready(self) -> str:
        """Why there is no backend; ``""`` if there is one."""
        return "" if self._mongod is None else self._mongod.why_not_ready()

    @asynccontextmanager
    async def backend(self, settings: Settings, report: Callable[[BaseException], None]) -> AsyncIterator[Settings]:
        """The settings with a backend, which runs meanwhile if it is embedded; ``report`` gets errors of its watch.

        Raises ``ConfigurationError`` or ``EmbeddedFailed``.
        """
        if settings.backend is not None:
            yield settings
            return
        # Imported only if it is needed.
        from proxy.process.embedded import EmbeddedMongod, EmbeddedOptions, find_mongod

        binary = find_mongod(settings.embedded_mongod)
        options = EmbeddedOptions(binary, settings.embedded_data_directory, settings.embedded_cache_size_gb)
        self._mongod = mongod = EmbeddedMongod(options)
        await mongod.start()
        watch = TaskSet(report).spawn(mongod.watch())
        try:
            yield replace(settings, backend=mongod.proxy_uri)
        finally:
            await asyncio.shield(mongod.stop())
            await watch
