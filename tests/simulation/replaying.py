"""What a failure says of the seed that it came from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def replayable(seed: int, module: str, selected: str = "") -> Iterator[None]:
    """An error tells how to run this seed alone: in this module, with what ``-k`` selects."""
    try:
        yield
    except BaseException as error:
        command = f".venv/bin/python -m pytest tests/simulation/{module}.py" + (f" -k {selected}" if selected else "")
        error.add_note(f"replay: TSPROXY_SIMULATION_SEED={seed} {command}")
        raise
