"""Where the time of a command goes: waiting in the proxy, and at the backend.

Only commands that have to wait, or whose plan has several steps, need a record. For all others, the time between
sending the command and its reply is the backend's (``proxy.request.exchange``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final

NOT_SENT: Final = math.inf
"""The time at which the backend got a command that it has not got."""

MOST_STEPS: Final = 8
"""Maximum number of steps of a plan whose bodies are kept."""


class Wait(Enum):
    """What a command waits for in the proxy; the values are the names in logs."""

    QUEUE = "queue"
    """Room for uncommitted measurements, or a place among the steps or commands that may run at once."""
    TURN = "turn"
    """The turn of its connection (``proxy.clients.turns``)."""
    JOINS = "joins"
    """The end of a join of bucket parts."""
    COMMIT = "commit"
    """The commit round that takes its measurements."""
    REPLICATION = "replication"
    """Its write concern."""
    PRIMARY = "primary"
    """The next primary."""
    PAUSE = "pause"
    """The end of a pause of all clients."""


class Times:
    """The record of one command."""

    __slots__ = ("backend_seconds", "is_reported", "steps", "waited")

    def __init__(self) -> None:
        self.backend_seconds = 0.0
        """Time of complete steps at the backend."""
        self.waited: dict[Wait, float] = {}
        self.steps: list[Mapping[str, Any]] = []
        """The bodies of the first steps of a plan."""
        self.is_reported = False
        """Whether the command was reported as slow already."""

    def wait(self, kind: Wait, since_seconds: float) -> None:
        """The command has waited since then (``time.perf_counter``)."""
        self.waited[kind] = self.waited.get(kind, 0.0) + time.perf_counter() - since_seconds

    @contextmanager
    def waiting(self, kind: Wait) -> Iterator[None]:
        """The command waits inside this context."""
        since_seconds = time.perf_counter()
        try:
            yield
        finally:
            self.wait(kind, since_seconds)

    @contextmanager
    def at_backend(self) -> Iterator[None]:
        """The backend works for the command inside this context."""
        since_seconds = time.perf_counter()
        try:
            yield
        finally:
            self.backend_seconds += time.perf_counter() - since_seconds

    def step(self, body: Mapping[str, Any]) -> None:
        """A step of the plan is sent."""
        if len(self.steps) < MOST_STEPS:
            self.steps.append(body)
