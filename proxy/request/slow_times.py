"""Divides the duration of a slow command: waiting in the proxy, the backend, and the rest, which is the proxy's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from catalog.ports import Acknowledgement
from proxy.request.times import NOT_SENT, Times, WaitKind

if TYPE_CHECKING:
    from proxy.request.exchange import Exchange
    from proxy.request.slow_threshold import Ended

PROXY = "proxy"
BACKEND = "backend"


def way_of(exchange: Exchange) -> str:
    """The way of a command; ``refuse`` if it had taken none yet."""
    return "refuse" if exchange.meter is None else exchange.meter.way


def is_committed_here(exchange: Exchange) -> bool:
    """Whether this is an insert of measurements that this process commits; one that it does not take is relayed."""
    return way_of(exchange) == "ingest" and not 0.0 < exchange.sent_seconds < NOT_SENT


def spent_by(exchange: Exchange, ended: Ended) -> Mapping[str, float]:
    """As ``spent``, by a command that has ended."""
    return spent(
        exchange.started_seconds,
        exchange.started_seconds + ended.seconds,
        exchange.sent_seconds,
        exchange.known_times,
        ended.acknowledgement,
        is_insert=is_committed_here(exchange),
        turn_seconds=exchange.turn_seconds,
    )


def spent(
    started_seconds: float,
    ended_seconds: float,
    sent_seconds: float,
    times: Times | None,
    acknowledgement: Acknowledgement | None,
    *,
    is_insert: bool,
    turn_seconds: float = 0.0,
) -> Mapping[str, float]:
    """Seconds by part: ``proxy``, ``backend``, and the waits that were not zero. The sum is the whole duration.

    ``sent_seconds``, ``turn_seconds``: see ``CommandClock``. ``is_insert``: of measurements, so that a commit decides.
    """
    total = ended_seconds - started_seconds
    waited = {} if times is None else dict(times.waited)
    if turn_seconds:
        waited[WaitKind.TURN] = turn_seconds
    backend = 0.0 if times is None else times.backend_seconds
    if is_insert:
        backend += _commit(started_seconds, ended_seconds, waited, backend, acknowledgement)
    elif sent_seconds < NOT_SENT:
        # What it has waited for before it was sent is recorded; since then it was at the backend.
        backend += ended_seconds - max(sent_seconds, started_seconds + turn_seconds)
    parts = {BACKEND: backend, **{wait.value: seconds for wait, seconds in waited.items()}}
    parts = {name: min(max(seconds, 0.0), total) for name, seconds in parts.items()}
    known = sum(parts.values())
    if known > total:
        # Steps of one command may run at the same time.
        parts = {name: seconds * total / known for name, seconds in parts.items()}
        known = total
    return {PROXY: total - known, **parts}


def _commit(
    started_seconds: float,
    ended_seconds: float,
    waited: dict[WaitKind, float],
    known_backend: float,
    acknowledgement: Acknowledgement | None,
) -> float:
    """The time of the last commit of an insert at the backend; adds the waits before and after it to ``waited``."""
    before = sum(waited.values()) + known_backend
    if acknowledgement is None or not acknowledgement.sent_at_seconds:
        # No commit has succeeded, or it was refused before: how long the backend had it is not known.
        waited[WaitKind.COMMIT] = ended_seconds - started_seconds - before
        return 0.0
    sent = max(acknowledgement.sent_at_seconds, started_seconds)
    answered = min(max(acknowledgement.answered_at_seconds, sent), ended_seconds)
    waited[WaitKind.COMMIT] = max(sent - started_seconds - before, 0.0)
    if acknowledgement.is_confirmed:
        waited[WaitKind.REPLICATION] = ended_seconds - answered
    return answered - sent
