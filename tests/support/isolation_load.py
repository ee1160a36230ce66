"""Clients that write through both proxies of an ``Isolation``, and lose connections."""

from __future__ import annotations

import random
import time

from tests.support.isolation import SHAPES, Attempt, Isolation, Statement, all_at_once

CLIENTS = 12
DROPPED = 0.2
"""The share of statements whose client does not wait for the reply."""
AT_ONCE = 0.2
"""The share of statements that both proxies get at the same moment."""
LONGEST_PATIENCE_SECONDS = 1.0
"""A client sends its statement to the other proxy within this time."""


def load(pair: Isolation, seconds: float, chance: random.Random) -> None:
    """Write for some time; every statement is acknowledged in the end."""
    until = time.monotonic() + seconds
    chances = [random.Random(chance.random()) for _ in range(CLIENTS)]
    all_at_once(lambda each=each: _write(pair, until, each) for each in chances)


def _write(pair: Isolation, until: float, chance: random.Random) -> None:
    latest: Statement | None = None
    while time.monotonic() < until:
        latest = pair.statement(f"s{chance.randrange(5)}", chance.choice(SHAPES), after=latest)
        first, second = chance.sample(pair.both, 2)
        attempt = Attempt(latest, first)
        if chance.random() < AT_ONCE:
            latest.repeat(second)
            attempt.is_acknowledged()
            continue
        if chance.random() < DROPPED:
            attempt.leave()
        elif attempt.is_acknowledged():
            continue
        time.sleep(chance.random() * LONGEST_PATIENCE_SECONDS)
        latest.repeat(second)
