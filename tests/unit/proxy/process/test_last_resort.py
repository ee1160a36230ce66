"""The timer that ends the process although something does not end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest
import uvloop

from proxy.process.last_resort import LastResort

PROGRAM = """
import threading
from proxy.process.last_resort import LastResort
last_resort = LastResort()
last_resort.within(0.2, 7)
{}
threading.Thread(target=threading.Event().wait, args=({},)).start()
"""


def ended_with(step: str, busy_seconds: float) -> int:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(step, busy_seconds)], timeout=60, check=False
    ).returncode


def test_thread_that_does_not_end_is_left_behind() -> None:
    assert ended_with("", 50) == 7


def test_later_time_replaces_the_earlier_one_and_cancel_ends_it() -> None:
    assert ended_with("last_resort.within(0.3, 8)", 50) == 8
    assert ended_with("last_resort.cancel()", 1) == 0


EXCEPTION_AND_ON = """
import threading
from proxy.process.last_resort import LastResort
try:
    with LastResort() as last_resort:
        last_resort.within(0.2, 7)
        raise ValueError
except ValueError:
    threading.Event().wait(1)
"""


def test_exception_ends_it_too() -> None:
    """What calls may handle the exception: the timer must not end it later."""
    assert subprocess.run([sys.executable, "-c", EXCEPTION_AND_ON], timeout=60, check=False).returncode == 0


UNREAD = """
import os, sys, threading
from proxy.observe import logs
from proxy.process.last_resort import LastResort
reader, writer = os.pipe()
os.dup2(writer, 2)
os.set_blocking(2, False)
try:
    while True:
        os.write(2, bytes(4096))
except BlockingIOError:
    os.set_blocking(2, True)
logs.configure("info", "console")
LastResort().within(0.2, 7)
{}
"""


@pytest.mark.parametrize("busy", ["threading.Event().wait(50)", "print('held', file=sys.stderr)"])
def test_a_log_that_nobody_reads_does_not_keep_the_process(busy: str) -> None:
    assert subprocess.run([sys.executable, "-c", UNREAD.format(busy)], timeout=20, check=False).returncode == 7


BLOCKED_LOOP = """
import asyncio, os, signal, time, uvloop
from proxy.process.last_resort import LastResort
async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)
    last_resort.hears({signal.SIGTERM}, lambda: 0.2)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(50)
with LastResort() as last_resort, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""


def test_a_signal_ends_the_process_although_the_loop_does_not_work() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED_LOOP], timeout=20, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "exiting without waiting" in done.stdout


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_loop_gets_all_signals_as_before(make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def until_heard() -> None:
        heard = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, heard.set)
        with LastResort() as last_resort:
            last_resort.hears({signal.SIGUSR2}, lambda: 0.0)
            os.kill(os.getpid(), signal.SIGUSR1)
            await heard.wait()
            heard.clear()
        os.kill(os.getpid(), signal.SIGUSR1)
        await heard.wait()

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(asyncio.wait_for(until_heard(), 20))
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_signals_that_come_together_are_one_of_each(make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Two of SIGTERM would be a stop that does not wait for clients."""
    together = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    times = 200

    async def heard() -> Counter[int]:
        found: Counter[int] = Counter()
        for each in together:
            asyncio.get_running_loop().add_signal_handler(each, lambda number=each: found.update([number]))
        with LastResort() as last_resort:
            last_resort.hears({signal.SIGINT}, lambda: 0.0)
            for done in range(1, times + 1):
                for each in together:
                    os.kill(os.getpid(), each)
                async with asyncio.timeout(20):
                    while min(found[each] for each in together) < done:  # noqa: ASYNC110 - handlers count
                        await asyncio.sleep(0.001)
        return found

    with asyncio.Runner(loop_factory=make) as runner:
        assert runner.run(heard()) == dict.fromkeys(together, times)
    assert signal.set_wakeup_fd(-1) == -1
