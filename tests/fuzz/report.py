"""What a fuzz run found out: each round when it ends, then for each arena the figures that an operator judges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

RATIO = 3.0
"""The measured client's 99th percentile under attack may be so many times what it is alone."""
NATIVE_RATIO = 1.5
"""Or so many times that of a client past the proxy under the same attack: where the backend or the machine is what
makes clients wait, no proxy can make them wait less."""
OWN_SECONDS = 0.02
"""And the 99th percentile of what the proxy answers without the backend may be so long: that wait is its own."""
LONGEST_TEXT = 6000
MOST_VIOLATIONS = 20
ALONE, ATTACKED = 0, 1

Waits = dict[int, list[float]]
"""Times in seconds, by phase: ``ALONE`` or ``ATTACKED``."""


@dataclass
class Report:
    """One round in one arena."""

    guarded: bool
    seed: int = 0
    waits: Waits = field(default_factory=dict)
    finds: Waits = field(default_factory=dict)
    natively: Waits = field(default_factory=dict)
    hellos: Waits = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)
    """Numbers of messages, one within the other: those that the proxy handled, damaged ones, honest inserts."""
    actions: Counter[str] = field(default_factory=Counter)
    slow: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    memory_bytes: int = 0
    """The most that the proxy occupied."""
    server_bytes: int = 0
    """The most that mongod occupied."""
    complete: bool = True
    """``False`` if a signal ended the round: then not everything is compared."""

    @property
    def access(self) -> str:
        """The name of the arena."""
        return f"access control {'on' if self.guarded else 'off'}"

    def text(self) -> str:
        """The round for people."""
        memory = f"memory {self.memory_bytes >> 20} MB at most, mongod's {self.server_bytes >> 20} MB"
        title = f"--- {self.access}, seed {self.seed}, {memory}"
        lines = [title if self.complete else f"{title}, ended early: not everything was compared"]
        measured = {
            "inserts": self.waits,
            "finds": self.finds,
            "hellos": self.hellos,
            "inserts past the proxy": self.natively,
        }
        for name, waits in measured.items():
            lines += [f"  {name}, {word}: {told(waits.get(phase, []))}" for phase, word in _PHASES]
        lines += [f"  {line}" for line in self.lines]
        lines.append(f"  messages: {dict(self.requests)}")
        lines.append(f"  actions: {dict(self.actions)}; slow: {dict(self.slow)}")
        lines += [f"  VIOLATION: {failure[:LONGEST_TEXT]}" for failure in self.failures[:MOST_VIOLATIONS]]
        if len(self.failures) > MOST_VIOLATIONS:
            lines.append(f"  and {len(self.failures) - MOST_VIOLATIONS} more violations")
        return "\n".join(lines)


@dataclass(frozen=True)
class Verdict:
    """The end of a run."""

    text: str
    passed: bool


def verdict(reports: Sequence[Report], *, judge_waits: bool = True, stopped_by: str = "") -> Verdict:
    """All rounds together, for each arena: a percentile of one round would be that of a few measurements.

    ``stopped_by``: the signal that ended the run early, which then did not pass.
    """
    lines, passed = [], not stopped_by
    for guarded in (False, True):
        rounds = [report for report in reports if report.guarded == guarded]
        text, is_good = _arena(rounds, judge_waits=judge_waits)
        lines += [f"=== access control {'on' if guarded else 'off'}: {text}"]
        passed = passed and is_good
    stopped = f", stopped by {stopped_by}" if stopped_by else ""
    violations = sum(len(report.failures) for report in reports)
    lines.append(f"{len(reports)} rounds{stopped}, {violations} violations: {'passed' if passed else 'FAILED'}")
    return Verdict("\n".join(lines), passed)


def _arena(rounds: Sequence[Report], *, judge_waits: bool) -> tuple[str, bool]:
    if not rounds:
        return "no round", False
    violations = sum(len(report.failures) for report in rounds)
    requests = sum((report.requests for report in rounds), Counter[str]())
    waits, is_prompt = _judged(rounds)
    lines = [
        f"{len(rounds)} rounds",
        *waits,
        "waits: " + ("within bounds" if is_prompt else "BROKEN" if judge_waits else "not judged"),
        f"p99 by round, alone and under attack: {', '.join(_round(report) for report in rounds)} ms",
        f"memory of the proxy: {max(report.memory_bytes for report in rounds) >> 20} MB at most",
        f"messages: {', '.join(f'{count} {kind}' for kind, count in requests.items())}",
        f"violations: {violations}",
    ]
    return "\n  ".join(lines), not violations and (is_prompt or not judge_waits)


def _judged(rounds: Sequence[Report]) -> tuple[list[str], bool]:
    """The waits of all rounds for people, and whether they are within bounds."""
    alone, attacked = (_all([report.waits for report in rounds], phase) for phase in (ALONE, ATTACKED))
    natively = _all([report.natively for report in rounds], ATTACKED)
    hellos = _all([report.hellos for report in rounds], ATTACKED)
    to_alone, to_native = _ratio(attacked, alone), _ratio(attacked, natively)
    lines = [
        f"inserts alone: {told(alone)}",
        f"inserts under attack: {told(attacked)}",
        f"inserts past the proxy under the same attack: {told(natively)}",
        f"hellos under attack: {told(hellos)}, p99 at most {OWN_SECONDS * 1000:.0f} ms",
        f"p99 under attack to p99 alone: {to_alone:.1f}, at most {RATIO:.0f}",
        f"or p99 under attack to p99 past the proxy: {to_native:.1f}, at most {NATIVE_RATIO:.1f}",
    ]
    is_own_prompt = bool(hellos) and p99(hellos) <= OWN_SECONDS
    return lines, is_own_prompt and (to_alone <= RATIO or to_native <= NATIVE_RATIO)


def _ratio(waits: Sequence[float], base: Sequence[float]) -> float:
    """Between their 99th percentiles; infinite where one is unknown."""
    return p99(waits) / p99(base) if waits and base else math.inf


def _all(waits: Sequence[Waits], phase: int) -> list[float]:
    return [wait for each in waits for wait in each.get(phase, [])]


def _round(report: Report) -> str:
    alone, attacked = (p99(report.waits.get(phase, [])) * 1000 for phase in (ALONE, ATTACKED))
    return f"{alone:.1f} and {attacked:.1f}"


_PHASES = ((ALONE, "alone"), (ATTACKED, "under attack"))


def p99(waits: Sequence[float]) -> float:
    """The 99th percentile; 0 of nothing."""
    return sorted(waits)[int(len(waits) * 0.99)] if waits else 0.0


def told(waits: Sequence[float]) -> str:
    """In milliseconds, for people."""
    if not waits:
        return "none"
    middle, longest = sorted(waits)[len(waits) // 2] * 1000, max(waits) * 1000
    return f"p50 {middle:.1f} p99 {p99(waits) * 1000:.1f} longest {longest:.0f} ms of {len(waits)}"
