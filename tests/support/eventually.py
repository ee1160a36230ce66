"""Waits for a condition, in the test's own event loop or without one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable


async def eventually(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Return when ``condition`` is true; ``TimeoutError`` if it never is."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.002)


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Return when ``condition`` is true, in a test without an event loop; ``AssertionError`` if it never is."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        threading.Event().wait(0.1)
