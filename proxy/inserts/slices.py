"""Divides long work of clients into time slices, so that other clients do not wait for all of it.

Each piece of work is an iterator of small steps. Its first slice runs at once; the rest runs in the following turns of
the event loop, round robin with other work. A long step that cannot be divided, such as parsing a large document, runs
in a thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any, Final

FIRST_SLICE_SECONDS: Final = 0.004
"""Length of the first slice; an insert of usual size is staged within it, so that it is committed in one round."""
SLICE_SECONDS: Final = 0.001
"""Length of a slice while other work waits."""
TURN_SECONDS: Final = 0.002
"""Maximum time for slices in one turn of the event loop."""

_aside: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="aside")


class ThreadCall:
    """A function call to be made in a thread; ``result`` returns its value or raises its exception."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._function = function
        self._arguments = arguments
        self._returned: Any = None
        self._raised: BaseException | None = None

    def call(self) -> None:
        """Call the function, in the current thread."""
        try:
            self._returned = self._function(*self._arguments)
        except Exception as error:  # noqa: BLE001 - raised by ``result``
            self._raised = error

    @property
    def result(self) -> Any:
        """The function's value; raises its exception."""
        if self._raised is not None:
            raise self._raised
        return self._returned


SliceResult = ThreadCall | bool
"""What work yields: a call to make in a thread before the next step, or whether to wait for the next turn."""

Paused = Callable[[], None]


class Slices:
    """Runs pieces of work in slices. ``work`` must not raise."""

    def __init__(self, now_seconds: Callable[[], float] = perf_counter) -> None:
        self._now_seconds = now_seconds
        self._waiting: deque[tuple[Iterator[SliceResult], Paused]] = deque()
        self._is_scheduled = False

    def start(self, work: Iterator[SliceResult], paused: Paused) -> None:
        """Run the first slice now; ``paused`` is called after each slice but the last."""
        self._slice(work, paused, SLICE_SECONDS if self._waiting else FIRST_SLICE_SECONDS)

    def _slice(self, work: Iterator[SliceResult], paused: Paused, seconds: float) -> None:
        until_seconds = self._now_seconds() + seconds
        for step in work:
            if step is False:
                if self._now_seconds() < until_seconds:
                    continue
            elif step is not True:
                assert isinstance(step, ThreadCall)
                paused()
                self._call_in_thread(step, work, paused)
                return
            paused()
            self._wait(work, paused)
            return

    def _wait(self, work: Iterator[SliceResult], paused: Paused) -> None:
        self._waiting.append((work, paused))
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _call_in_thread(self, step: ThreadCall, work: Iterator[SliceResult], paused: Paused) -> None:
        called = asyncio.get_running_loop().run_in_executor(_aside, step.call)
        called.add_done_callback(lambda _: self._wait(work, paused))

    def _next(self) -> None:
        self._is_scheduled = False
        until_seconds = self._now_seconds() + TURN_SECONDS
        for _ in range(len(self._waiting)):
            work, paused = self._waiting.popleft()
            self._slice(work, paused, TURN_SECONDS if not self._waiting else SLICE_SECONDS)
            if self._now_seconds() >= until_seconds:
                break
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next)
