"""A clock of the event loop that stands still, for what must not happen before a timer ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def clock_stands_still() -> Iterator[None]:
    """No timer of the running event loop ends inside, however slow the machine is; later they go on."""
    loop = asyncio.get_running_loop()
    now_seconds = loop.time()
    loop.time = lambda: now_seconds  # type: ignore[method-assign]
    try:
        yield
    finally:
        del loop.time
