"""Waits for a condition inside the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def eventually(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Return when ``condition`` is true; ``TimeoutError`` if it never is."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.002)
