"""Measures commands, and reports internal errors."""

from __future__ import annotations

from typing import Final, Protocol

import structlog

from catalog.internal_errors import new_reference
from proxy.request.command import Command
from proxy.request.command_table import TABLE
from proxy.request.exchange import Exchange, Meter
from proxy.request.slow_threshold import NEVER_SLOW, SlowThreshold

log = structlog.get_logger()

OTHER_COMMANDS: Final = "other"
"""The label of all commands that the command table does not list."""


class Numbers(Protocol):
    """The counters of requests and internal errors (``proxy.observe.metrics``)."""

    invariant_violations: int

    def requests(self, command: str, way: str) -> Meter:
        """The meter for a command and a way."""
        ...


class Measuring:
    """Chooses the meter of each command. ``slow``: when a command counts as slow."""

    def __init__(self, numbers: Numbers, slow: SlowThreshold = NEVER_SLOW) -> None:
        self._numbers = numbers
        self._meters: dict[tuple[str, str], Meter] = {}
        self.slow = slow

    def begin(self, exchange: Exchange, command: Command, way: str) -> Meter:
        """Count the command when it ends, as one that goes this way."""
        meter = self._meters.get((command.name, way))
        if meter is None:
            # Clients can invent command names of any length.
            name = command.name if command.name in TABLE else OTHER_COMMANDS
            meter = self._meters[name, way] = self._numbers.requests(name, way)
        exchange.meter = meter
        return meter

    def report(self, exchange: Exchange, error: Exception) -> str:
        """Log and count an internal error; returns the reference that the client gets."""
        self._numbers.invariant_violations += 1
        reference, command = new_reference(), exchange.command
        known = command.name if command is not None and command.name in TABLE else OTHER_COMMANDS
        log.error("unexpected error", reference=reference, command=known, exc_info=error)
        return reference
