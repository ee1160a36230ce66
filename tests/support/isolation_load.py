"""Clients that write through both proxies of an ``Isolation``, and lose connections."""

from __future__ import annotations

import random
import time

from tests.support.isolation import SHAPES, Attempt, Isolation, Statement, all_at_once

CLIENTS = 12
DROPPED = 0.2
"""The share of statements whose client does not wait for the reply."""
RETRY_SECONDS = 1.0
"""Later, it sends the statement to the other proxy."""


def load(pair: Isolation, seconds: float, chance: random.Random) -> None:
    """Write for some time; every statement is acknowledged in the end."""
    until = time.monotonic() + seconds
    chances = [random.Random(chance.random()) for _ in range(CLIENTS)]
    all_at_once(lambda each=each: _write(pair, until, each) for each in chances)


def _write(pair: Isolation, until: float, chance: random.Random) -> None:
    latest: Statement | None = None
    while time.monotonic() < until:
        latest = pair.statement(f"s{chance.randrange(5)}", chance.choice(SHAPES), after=latest)
        first, second = chance.sample((pair.one, pair.two), 2)
        attempt = Attempt(latest, first)
        if chance.random() < DROPPED:
            attempt.leave()
        elif attempt.is_acknowledged():
            continue
        time.sleep(RETRY_SECONDS)
        latest.repeat(second)
