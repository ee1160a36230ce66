"""The first signal waits for clients, the second does not."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from proxy.process.last_resort import LastResort
from proxy.process.stopping import Stopping


async def test_first_signal_is_an_event_and_the_second_cancels() -> None:
    stops: list[int] = []

    async def serving() -> None:
        stopping.follow_signals()
        stopping.serves = True
        os.kill(os.getpid(), signal.SIGTERM)
        await stopping.event.wait()
        stops.append(len(stops))
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    told: list[str] = []
    with LastResort() as last_resort:
        stopping = Stopping(last_resort, lambda: 60.0, lambda: told.append("stop"))
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(serving())
    assert stops == [0]
    assert told == ["stop", "stop"]


async def test_at_startup_the_first_signal_cancels() -> None:
    async def starting() -> None:
        stopping.follow_signals()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    with LastResort() as last_resort:
        stopping = Stopping(last_resort, lambda: 60.0, lambda: None)
        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(starting())
    assert stopping.event.is_set()
