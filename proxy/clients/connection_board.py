"""How many connections each of several processes has that accept clients from the same sockets.

The kernel wakes all of them for a new connection, and the one that is first would get it, usually one that is idle. So
each process writes its number into memory that they share, and one that has more than another gives way for a moment.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Final

MOST_PROCESSES: Final = 64
_ABSENT: Final = -1
_SIZE_BYTES: Final = 8 * MOST_PROCESSES


def make_board() -> int:
    """Make the memory, without processes; returns its file descriptor, which child processes can inherit."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tsproxy-connections")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.write(descriptor, _ABSENT.to_bytes(8, "little", signed=True) * MOST_PROCESSES)
    return descriptor


def leave_board(descriptor: int, number: int) -> None:
    """The process with this number has ended."""
    os.pwrite(descriptor, _ABSENT.to_bytes(8, "little", signed=True), 8 * number)


class ConnectionBoard:
    """The numbers of all processes, one of which is this one."""

    def __init__(self, descriptor: int, number: int) -> None:
        """``number``: of this process, below ``MOST_PROCESSES``."""
        self._counts = memoryview(mmap.mmap(descriptor, _SIZE_BYTES)).cast("q")
        self._number = number

    def publish(self, connections: int) -> None:
        """Tell the other processes how many connections this one has."""
        self._counts[self._number] = connections

    def is_busiest(self) -> bool:
        """Whether another process has fewer connections than this one."""
        own = self._counts[self._number]
        return any(0 <= count < own for count in self._counts)
