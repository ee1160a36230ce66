"""The Dockerfile, for the tests of what is built and deployed."""

from __future__ import annotations

from pathlib import Path

_PATH = Path(__file__).parent.parent.parent / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions with continued lines joined."""
    text = _PATH.read_text().replace("\\\n", " ")
    lines = (line.strip() for line in text.splitlines())
    return [tuple(line.split(None, 1)) for line in lines if line and not line.startswith("#")]  # type: ignore[misc]
