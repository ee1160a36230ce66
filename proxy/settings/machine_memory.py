"""The memory that this process may use: that of the machine, or less in a container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

CATALOG_SHARE: Final = 0.025
"""The part of the memory that open buckets may use by default, as in newer servers (7.0.28)."""

_CGROUPS: Final = Path("proc/self/cgroup")
_SECOND: Final = (Path("sys/fs/cgroup"), "memory.max")
_FIRST: Final = (Path("sys/fs/cgroup/memory"), "memory.limit_in_bytes")
"""Where the two versions of control groups are mounted, and the name of the file with the limit."""


def catalog_memory_bytes() -> int:
    """The default of ``timeseries_idle_bucket_expiry_memory_usage_threshold``."""
    return max(1, int(CATALOG_SHARE * memory_bytes(installed_bytes(), Path("/"))))


def installed_bytes() -> int:
    """The memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_bytes(installed: int, root: Path) -> int:
    """The smallest of ``installed`` and the limits of this process's control groups; ``root`` has ``proc`` and ``sys``.

    Systems without control groups have no such limits.
    """
    try:
        memberships = (root / _CGROUPS).read_text()
    except OSError:
        return installed
    return min([installed, *_limits(memberships, root)])


def _limits(memberships: str, root: Path) -> Iterator[int]:
    for line in memberships.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" and not controllers:
            mount, name = _SECOND
        elif "memory" in controllers.split(","):
            mount, name = _FIRST
        else:
            continue
        # The limits of all groups above count, too. A container may see its own group as the root.
        group = PurePosixPath(path.lstrip("/"))
        for each in (group, *group.parents):
            yield from _limit(root / mount / each / name)


def _limit(file: Path) -> Iterator[int]:
    try:
        text = file.read_text().strip()
    except OSError:
        return
    if text.isascii() and text.isdigit():
        yield int(text)
