"""``python -m tests.fuzz SECONDS [SEED]``: proxies with and without access control under attack, in turn.

A round is two minutes in one of two arenas, which live to the end, so that what grows is seen. Ends with 1 when
anything that must hold did not, or the measured client waited too long in either arena; ``FUZZ_JUDGE_WAITS=no`` leaves
the waits out of that. SIGINT, SIGTERM and SIGHUP end the run early: it tells what is known by then, and ends with 1.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType

from tests.fuzz.report import Report, verdict
from tests.fuzz.siege import Arena, Siege

ROUND_SECONDS = 120.0
ALONE_SHARE = 0.25


class Stop(threading.Event):
    """Set by the first signal; the second one has its usual effect."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._signalled)

    def _signalled(self, number: int, _: FrameType | None) -> None:
        self.name = signal.Signals(number).name
        signal.signal(number, signal.SIG_DFL)
        print(f"{self.name}: the run ends", flush=True)
        self.set()


def main() -> None:
    """Rounds without access control, then as long with it, each with a seed of its own."""
    left_seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 31)
    judge_waits = os.environ.get("FUZZ_JUDGE_WAITS", "yes") != "no"
    stop = Stop()
    reports: list[Report] = []
    with tempfile.TemporaryDirectory() as folder:
        arenas = [Arena(Path(folder), guarded=guarded) for guarded in (False, True)]
        try:
            _rounds(arenas, reports, left_seconds, seed, stop, judge_waits=judge_waits)
        finally:
            told = verdict(reports, judge_waits=judge_waits, stopped_by=stop.name)
            print(told.text, flush=True)
    sys.exit(0 if told.passed else 1)


def _rounds(
    arenas: list[Arena], reports: list[Report], seconds: float, seed: int, stop: threading.Event, *, judge_waits: bool
) -> None:
    """At least one in each arena, one arena after the other, unless something is wrong."""
    began = time.monotonic()
    round_seconds = min(ROUND_SECONDS, max(10.0, seconds / len(arenas)))
    for number, arena in enumerate(arenas, 1):
        is_over = stop.is_set()
        try:
            if not is_over:
                arena.start()
            while not is_over:
                siege = Siege(arena, seed + len(reports), judge_waits=judge_waits, stop=stop)
                report = siege.run(ALONE_SHARE * round_seconds, (1 - ALONE_SHARE) * round_seconds, interludes=2)
                reports.append(report)
                print(report.text(), flush=True)
                if report.failures:
                    return
                is_over = stop.is_set() or time.monotonic() >= began + seconds * number / len(arenas)
        finally:
            arena.stop()


if __name__ == "__main__":
    main()
