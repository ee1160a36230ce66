"""The identity of a server process, which ``hello`` tells (from 4.4 on).

A cursor ends with its process. A step-down or an election ends neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bson import ObjectId


def process_of(hello: Mapping[str, Any]) -> bytes:
    """The identity of the process that gave this reply to ``hello``; ``b""`` if it tells none."""
    version = hello.get("topologyVersion")
    process = version.get("processId") if isinstance(version, Mapping) else None
    return process.binary if isinstance(process, ObjectId) else b""
