"""Long work of clients, done in slices of time so that nobody waits for the whole of it.

Each piece of work is an iterator that takes a little step each time it is asked. The first slice is done at once;
what is left then goes on in the following turns of the event loop, in the order of a round in which each has one
slice. What is one step and long all the same, such as taking a large document apart, is done in a thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any, Final

FIRST_SLICE_SECONDS: Final = 0.004
"""What a usual batch takes is done at once, so that it leaves in one piece."""
SLICE_SECONDS: Final = 0.001
"""While others wait for their slices, too."""
TURN_SECONDS: Final = 0.004
"""So long slices go on in one turn."""

_aside: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="aside")


class Aside:
    """A function to be called in a thread; ``result`` gives what it returned or raises what it raised."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._function = function
        self._arguments = arguments
        self._returned: Any = None
        self._raised: BaseException | None = None

    def call(self) -> None:
        """Do it, here."""
        try:
            self._returned = self._function(*self._arguments)
        except Exception as error:  # noqa: BLE001 - handed to who asked
            self._raised = error

    @property
    def result(self) -> Any:
        """Raises what the function raised."""
        if self._raised is not None:
            raise self._raised
        return self._returned


Step = Aside | bool
"""After a step: what has to be done aside before the next one, whether the rest must wait for the next turn."""

Paused = Callable[[], None]


class Slices:
    """Gives each piece of work its slices. ``work`` must not raise."""

    def __init__(self, now_seconds: Callable[[], float] = perf_counter) -> None:
        self._now_seconds = now_seconds
        self._waiting: deque[tuple[Iterator[Step], Paused]] = deque()
        self._is_scheduled = False

    def start(self, work: Iterator[Step], paused: Paused) -> None:
        """Do the first slice now; ``paused`` is called after each that is not the last."""
        self._slice(work, paused, SLICE_SECONDS if self._waiting else FIRST_SLICE_SECONDS)

    def _slice(self, work: Iterator[Step], paused: Paused, seconds: float) -> None:
        until_seconds = self._now_seconds() + seconds
        for step in work:
            if step is False:
                if self._now_seconds() < until_seconds:
                    continue
            elif step is not True:
                assert isinstance(step, Aside)
                paused()
                self._call_aside(step, work, paused)
                return
            paused()
            self._wait(work, paused)
            return

    def _wait(self, work: Iterator[Step], paused: Paused) -> None:
        self._waiting.append((work, paused))
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def _call_aside(self, step: Aside, work: Iterator[Step], paused: Paused) -> None:
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
