"""``python -m tests.fuzz SECONDS [SEED]``: proxies with and without access control under attack, in turn.

A round is two minutes in one of two arenas, which live to the end, so that what grows is seen. Ends with 1 when
anything that must hold did not, or the measured client waited too long; ``FUZZ_JUDGE_WAITS=no`` leaves the waits out
of that.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import honest
from tests.fuzz.siege import RATIO, Arena, Report, Siege, p99, told

ROUND_SECONDS = 120.0
ALONE_SHARE = 0.25


def main() -> None:
    """Rounds in turn with access control and without, each with a seed of its own."""
    left_seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 31)
    judge_waits = os.environ.get("FUZZ_JUDGE_WAITS", "yes") != "no"
    reports: list[Report] = []
    with tempfile.TemporaryDirectory() as folder:
        arenas = [Arena(Path(folder), guarded=guarded) for guarded in (False, True)]
        try:
            for arena in arenas:
                arena.start()
            end = time.monotonic() + left_seconds
            round_seconds = min(ROUND_SECONDS, max(10.0, left_seconds / 2))
            while time.monotonic() < end or len(reports) < 2:
                arena = arenas[len(reports) % 2]
                siege = Siege(arena, seed + len(reports))
                report = siege.run(ALONE_SHARE * round_seconds, (1 - ALONE_SHARE) * round_seconds, interludes=2)
                reports.append(report)
                _show(report, seed + len(reports) - 1, arena)
                if report.failures:
                    break
        finally:
            for arena in arenas:
                arena.stop()
    sys.exit(_summary(reports, arenas, judge_waits=judge_waits))


def _show(report: Report, seed: int, arena: Arena) -> None:
    access = "on" if report.guarded else "off"
    print(f"--- access control {access}, seed {seed}, memory {max(arena.resident) >> 20} MB at most", flush=True)
    for name, waits in (("proxy", report.waits), ("natively meanwhile", report.natively)):
        for phase, word in ((honest.ALONE, "alone"), (honest.ATTACKED, "under attack")):
            print(f"  {name}, {word}: {told(waits.get(phase, []))}")
    for line in report.lines:
        print(f"  {line}")
    print(f"  actions: {dict(report.actions)}; slow: {dict(report.slow)}")
    for failure in report.failures[:20]:
        print(f"  VIOLATION: {failure[:6000]}")
    sys.stdout.flush()


def _summary(reports: list[Report], arenas: list[Arena], *, judge_waits: bool) -> int:
    alone = [wait for report in reports for wait in report.waits.get(honest.ALONE, [])]
    attacked = [wait for report in reports for wait in report.waits.get(honest.ATTACKED, [])]
    natively = [wait for report in reports for wait in report.natively.get(honest.ATTACKED, [])]
    violations = sum(len(report.failures) for report in reports)
    ratio = p99(attacked) / max(p99(alone), 1e-9)
    print(f"alone: {told(alone)}\nunder attack: {told(attacked)}\nnatively under the same attack: {told(natively)}")
    memory = ", ".join(f"{max(arena.resident, default=0) >> 20} MB" for arena in arenas)
    too_slow = judge_waits and ratio > RATIO
    print(
        f"{len(reports)} rounds, p99 {p99(alone) * 1000:.1f} ms alone, {p99(attacked) * 1000:.1f} ms under attack "
        f"({ratio:.1f} times, at most {RATIO:.0f}{'' if judge_waits else ', not judged'}), memory {memory}, "
        f"{violations} violations: {'FAILED' if violations or too_slow else 'passed'}"
    )
    return 1 if violations or too_slow else 0


if __name__ == "__main__":
    main()
