"""What deserves attention, in sentences: the status page shows them first. Most have an alert of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from proxy.observe.history import Span
from proxy.observe.readings import Reading

NoteSeverity = Literal["problem", "warning", "note"]

NEAR: Final = 0.8
"""Share of a limit from which on it is mentioned."""
MANY_ERRORS: Final = 0.05
FEWEST_ERRORS: Final = 5
MANY_PARTS: Final = 250_000


@dataclass(frozen=True, slots=True)
class Note:
    """One sentence."""

    severity: NoteSeverity
    text: str


@dataclass(frozen=True, slots=True)
class Watched:
    """What is looked at. ``recent``: the last minutes; ``state``: serving, paused or draining; ``held`` commands.

    ``beside_others``: whether other proxies use the backend, ``None`` if that is unknown. ``lacks``: what does not work
    with this backend, in one sentence.
    """

    latest: Reading
    recent: Span
    limits: Mapping[str, int]
    state: str
    held: int
    beside_others: bool | None
    lacks: str = ""


def notes_of(watched: Watched) -> list[Note]:
    """All notes, the most important ones first."""
    found = [note for rule in _RULES for note in rule(watched)]
    return sorted(found, key=lambda note: ("problem", "warning", "note").index(note.severity))


def _internal(watched: Watched) -> Iterator[Note]:
    counts = watched.latest.counts
    for name, what in (("internalErrors", "internal error"), ("commitFailures", "failed commit")):
        count = counts[name]
        if count:
            are = "s" if count > 1 else ""
            yield Note("problem", f"{count} {what}{are} since the start. Please report the log lines.")


def _state(watched: Watched) -> Iterator[Note]:
    if watched.state == "paused":
        yield Note("warning", f"An administrator has paused the clients: {watched.held} commands wait for resume.")
    elif watched.state == "draining":
        yield Note("warning", "An administrator drains this proxy: clients are turned away.")


def _lacks(watched: Watched) -> Iterator[Note]:
    if watched.lacks:
        yield Note("warning", f"{watched.lacks[0].upper()}{watched.lacks[1:]}.")


def _limits(watched: Watched) -> Iterator[Note]:
    gauges, limits = watched.latest.gauges, watched.limits
    for gauge, setting, what in _LIMITED:
        limit = limits.get(setting, 0)
        if limit and gauges[gauge] >= NEAR * limit:
            yield Note("warning", f"{what}: {gauges[gauge] / limit:.0%} of {setting}.")


_LIMITED: Final = (
    ("connections", "max_connections", "Many client connections"),
    ("uncommittedMeasurements", "max_pending_measurements", "Many uncommitted measurements"),
    ("uncommittedBytes", "max_pending_bytes", "Large uncommitted measurements"),
)


def _rejected(watched: Watched) -> Iterator[Note]:
    count = watched.recent.counts.get("rejectedConnections", 0)
    if count:
        yield Note("warning", f"{count} client connections were rejected in the last minutes.")


def _errors(watched: Watched) -> Iterator[Note]:
    errors, requests = watched.recent.errors, watched.recent.counts.get("requests", 0)
    count = sum(each for (_, _, kind), each in errors.items() if kind != "duplicate_key")
    if count >= FEWEST_ERRORS and count > MANY_ERRORS * requests:
        yield Note("warning", f"{count / requests:.0%} of the requests of the last minutes failed.")


def _unknown_outcomes(watched: Watched) -> Iterator[Note]:
    count = watched.recent.counts.get("unknownOutcomes", 0)
    if count:
        yield Note("warning", f"The replies to {count} commits were lost in the last minutes.")


def _parts(watched: Watched) -> Iterator[Note]:
    parts = watched.latest.gauges["unjoinedParts"]
    if parts > MANY_PARTS:
        yield Note("warning", f"{parts:,} parts wait to be joined: reads of recent data are slow.")


def _others(watched: Watched) -> Iterator[Note]:
    if watched.beside_others:
        yield Note("note", "Another tsproxy uses this backend.")


_RULES: Final[tuple[Callable[[Watched], Iterator[Note]], ...]] = (
    *(_internal, _state, _lacks, _limits, _rejected, _errors, _unknown_outcomes, _parts, _others),
)
