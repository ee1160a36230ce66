"""Runs the status listener, if there is one, with the work that fills its page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from proxy.observe.status import StatusServer
from proxy.observe.tasks import TaskSet
from proxy.process.exit_codes import cannot_listen


@asynccontextmanager
async def listening(
    server: StatusServer | None,
    record: Callable[[], Coroutine[Any, Any, None]],
    report: Callable[[BaseException], None],
) -> AsyncIterator[None]:
    """Listen meanwhile; ``record`` runs beside it, and ``report`` gets its errors. ``None``: there is no listener.

    Raises ``ConfigurationError`` if the address cannot be listened on.
    """
    if server is None:
        yield
        return
    try:
        await server.start()
    except OSError as error:
        raise cannot_listen("status_listen", server.address, error) from None
    recording = TaskSet(report)
    recording.keep(record)
    try:
        yield
    finally:
        await recording.close()
        await server.stop()
