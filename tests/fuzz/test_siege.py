"""A few seconds of four kinds of client at once; ``make fuzz`` is the long form, which also judges the waits."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.siege import Arena, Siege

ALONE_SECONDS, ATTACK_SECONDS = 0.5, 3.0


@pytest.mark.timeout(300)
def test_nothing_honest_is_lost(tmp_path: Path, scale: float) -> None:
    """With access control or without, whichever comes up; the long form goes through both in turn."""
    seed = random.randrange(1 << 31)
    arena = Arena(tmp_path, guarded=bool(seed % 2))
    try:
        arena.start()
        report = Siege(arena, seed, heavy_rows=300).run(ALONE_SECONDS, ATTACK_SECONDS * scale)
    finally:
        arena.stop()
    assert report.failures == [], f"seed {seed}, access control {report.guarded}"
    assert report.waits
