"""Notices when files that settings name are written or replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

WATCH_SECONDS: Final = 5.0
"""Interval at which files are checked."""

FileState = tuple[tuple[int, int, int], ...]
"""Values of each file that change when it is written or replaced."""


def state_of(paths: Iterable[Path]) -> FileState:
    """The state of these files now, also of those that are missing or cannot be examined."""
    return tuple(map(_state, paths))


def _state(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_size, status.st_mtime_ns)


async def watch(state: Callable[[], FileState], is_stable: Callable[[FileState], None], pause_seconds: float) -> None:
    """Call ``is_stable`` whenever the state is as it was ``pause_seconds`` ago: no file is being written."""
    seen = state()
    while True:
        await asyncio.sleep(pause_seconds)
        now = state()
        if now == seen:
            is_stable(now)
        seen = now
