"""``BucketStore.begin`` of stores that tests have, by their own coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from catalog.ports import BulkOutcome, OnOutcome


class Begins:
    """Sends in tasks of the store, which nobody but the store knows."""

    def __init__(self) -> None:
        self.begun: dict[asyncio.Task[BulkOutcome], None] = {}  # in the order of beginning

    def begin(self, sending: Coroutine[Any, Any, BulkOutcome], told: OnOutcome) -> bool:
        """Call ``told`` with the outcome, unless it is cancelled."""
        task = asyncio.get_running_loop().create_task(sending)
        self.begun[task] = None

        def ended(task: asyncio.Task[BulkOutcome]) -> None:
            del self.begun[task]
            if not task.cancelled():
                told(task.result())

        task.add_done_callback(ended)
        return True

    async def cancel(self) -> None:
        """Nobody is told any more."""
        tasks = list(self.begun)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
