"""What is different in the differential suite with native access, where the server does what the proxy does otherwise.

``make test-native`` runs it. Tests are named by file and name, with their parameters or without; a file alone is all of
its tests. The failures are strict.
"""

from __future__ import annotations

from collections.abc import Mapping

NATIVE: Mapping[str, str] = {}
"""Test → why it must fail with native access."""


def native_difference(test: str) -> str | None:
    """Why ``test``, ``file.py::name[parameters]``, must fail with native access; ``None`` when it must not."""
    return NATIVE.get(test) or NATIVE.get(test.partition("[")[0])
