"""The course of a bench: the same load into both sides in turns, and a check of what is stored."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Final

from proxy.tools.bench.schedule import Turns, order_of
from proxy.tools.bench.shapes import Shape
from proxy.tools.bench.sides import SIDES, Side, Stored, Unreachable
from proxy.tools.bench.tally import Tally
from proxy.tools.bench.workers import LEAVE_SECONDS, Load, Order, Processes

LOOK_SECONDS: Final = 0.1
"""Interval at which the progress is shown."""

Progress = Callable[[float, str], None]
"""Called with the seconds that have passed of ``planned_seconds``, and what is being done."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What to measure. ``processes`` is 0 for one for each core."""

    shape: Shape
    database: str
    connections: int = 8
    seconds: float = 10.0
    rounds: int = 5
    batch_rows: int = 1
    series: int = 100
    readers: int = 0
    processes: int = 0
    fills: bool = True
    into_existing: bool = False

    @property
    def planned_seconds(self) -> float:
        """The time of all rounds; the warm-up takes as long as the servers need."""
        return 2 * self.rounds * self.seconds

    @property
    def process_count(self) -> int:
        """How many load processes share the connections."""
        return min(self.connections, self.processes or os.cpu_count() or 1)


@dataclass(slots=True)
class Measured:
    """What was measured of one side: each round, their sum, the warm-up, and what is stored at the end."""

    rounds: list[Tally]
    whole: Tally
    warm_up: Tally
    stored: Stored | None = None

    @classmethod
    def nothing(cls) -> Measured:
        """Before the first round."""
        return cls([], Tally(), Tally())

    @property
    def acknowledged(self) -> Tally:
        """Everything that was acknowledged, with the warm-up."""
        everything = Tally()
        everything.follow(self.warm_up)
        everything.follow(self.whole)
        return everything


def run(options: BenchOptions, sides: Sequence[Side], progress: Progress) -> Mapping[str, Measured]:
    """Measure both sides, whose collections are there; raises ``Unreachable``."""
    load = Load(
        {side.name: side.target for side in sides},
        options.shape,
        Turns(options.connections, options.series, fills=options.fills),
        options.batch_rows,
        options.readers,
    )
    measured = {side.name: Measured.nothing() for side in sides}
    processes = Processes(load, options.process_count)
    try:
        for name in SIDES if options.fills else ():
            measured[name].warm_up = _carried_out(processes, Order(name), 0.0, progress)
        for number, name in enumerate(order_of(options.rounds, SIDES)):
            tally = _carried_out(processes, Order(name, options.seconds), number * options.seconds, progress)
            measured[name].rounds.append(tally)
            measured[name].whole.follow(tally)
    finally:
        processes.close()
    for side in sides:
        progress(options.planned_seconds, f"checking {side.name}")
        measured[side.name].stored = side.stored(measured[side.name].acknowledged)
    return measured


def _carried_out(processes: Processes, order: Order, before_seconds: float, progress: Progress) -> Tally:
    """Let the load processes carry out an order; what they measured together."""
    label = f"warm-up of {order.side}" if order.seconds is None else order.side
    whole, waiting, began_seconds = Tally(), list(processes.pipes), time.monotonic()
    try:
        processes.give(order)
        while waiting:
            ready = wait(waiting, LOOK_SECONDS)
            for pipe in [each for each in waiting if each in ready]:
                whole.add(pipe.recv())
                waiting.remove(pipe)
            passed_seconds = time.monotonic() - began_seconds
            if order.seconds is not None and passed_seconds > order.seconds + 2 * LEAVE_SECONDS:
                raise Unreachable(f"--{order.side}: the server does not reply any more")
            progress(before_seconds + min(passed_seconds, order.seconds or 0.0), label)
    except (EOFError, OSError) as error:
        raise Unreachable(f"a load process has ended: {error!r}") from None
    if not whole.rows and (order.seconds is not None or whole.errors):
        reasons = ", ".join(whole.errors) or "no command has ended in time"
        raise Unreachable(f"--{order.side}: no row was stored: {reasons}")
    return whole
