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
from typing import Any, Final, NamedTuple

from proxy.request.command_trace import CommandTrace

NOT_SENT: Final = math.inf
"""The time at which the backend got a command that it has not got."""

MOST_STEPS: Final = 8
"""Maximum number of steps of a plan whose bodies are kept."""
MOST_PARTS: Final = 32
"""Maximum number of parts of a traced command that are recorded."""


class WaitKind(Enum):
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


class Part(NamedTuple):
    """A part of a traced command, by ``time.perf_counter``: a step at the backend, or its rewriting.

    ``operation``: name of the command that the backend gets, ``""`` if that is not known; ``target``: its collection.
    """

    is_rewriting: bool
    started_seconds: float
    ended_seconds: float
    operation: str = ""
    target: str = ""


class Times:
    """The record of one command."""

    __slots__ = ("_step", "backend_seconds", "is_reported", "parts", "steps", "trace", "waited")

    def __init__(self, *, records_spans: bool = False) -> None:
        """``records_spans``: the command is traced."""
        self.parts: list[Part] | None = [] if records_spans else None
        """The first parts, if the command is traced."""
        self.trace: CommandTrace | None = None
        """The span of the command, once something else refers to it."""
        self._step: Mapping[str, Any] = {}
        self.backend_seconds = 0.0
        """Time of complete steps at the backend."""
        self.waited: dict[WaitKind, float] = {}
        self.steps: list[Mapping[str, Any]] = []
        """The bodies of the first steps of a plan."""
        self.is_reported = False
        """Whether the command was reported as slow already."""

    def wait(self, kind: WaitKind, since_seconds: float) -> None:
        """The command has waited since then (``time.perf_counter``)."""
        self.waited[kind] = self.waited.get(kind, 0.0) + time.perf_counter() - since_seconds

    @contextmanager
    def waiting(self, kind: WaitKind) -> Iterator[None]:
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
            self.was_at_backend(since_seconds)

    def was_at_backend(self, since_seconds: float) -> None:
        """The backend has worked for the command since then (``time.perf_counter``)."""
        now_seconds = time.perf_counter()
        self.backend_seconds += now_seconds - since_seconds
        if self.parts is not None:
            operation = next(iter(self._step), "")
            target = self._step.get(operation)
            self._add(Part(False, since_seconds, now_seconds, operation, target if isinstance(target, str) else ""))
            self._step = {}

    def was_rewritten(self, since_seconds: float) -> None:
        """The command was rewritten since then (``time.perf_counter``)."""
        self._add(Part(True, since_seconds, time.perf_counter()))

    def _add(self, part: Part) -> None:
        if self.parts is not None and len(self.parts) < MOST_PARTS:
            self.parts.append(part)

    def step(self, body: Mapping[str, Any]) -> None:
        """A step of the plan is sent."""
        if self.parts is not None:
            self._step = body
        if len(self.steps) < MOST_STEPS:
            self.steps.append(body)
