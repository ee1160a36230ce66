"""Files that are written or replaced are noticed, once nobody writes them any more."""

from __future__ import annotations

import asyncio
from pathlib import Path

from proxy.settings.file_state import FileState, state_of, watch


def test_the_state_changes_when_a_file_is_written_replaced_or_removed(tmp_path: Path) -> None:
    path, other = tmp_path / "file", tmp_path / "other"
    states = [state_of([path])]
    path.write_text("a")
    states.append(state_of([path]))
    assert state_of([path]) == states[-1]
    path.write_text("ab")
    states.append(state_of([path]))
    other.write_text("ab")
    other.replace(path)
    states.append(state_of([path]))
    assert len(set(states)) == len(states)
    path.unlink()
    assert state_of([path]) == states[0]


async def test_a_state_is_told_only_if_it_stays() -> None:
    looks = iter([1, 2, 3, 3, 4, 4])
    told: list[FileState] = []

    def state() -> FileState:
        return ((next(looks), 0, 0),)

    watching = asyncio.create_task(watch(state, told.append, 0.0))
    await asyncio.wait([watching], timeout=10)
    assert isinstance(watching.exception(), RuntimeError), "all looks are taken"
    assert told == [((3, 0, 0),), ((4, 0, 0),)]
