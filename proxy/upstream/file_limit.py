"""The limit of open files of the process: how many clients it allows, and which files are left for the proxy itself.

A system gives each new file the lowest free number, so a number near the limit says that nearly all files are in use.
"""

from __future__ import annotations

import errno
import resource
import sys
from typing import Final

from catalog.errors import BackendUnavailable

PER_CLIENT: Final = 2
"""Files of one client: its connection, and its own connection to the backend."""
OWN: Final = 80
"""Files that clients do not count on: listeners, connections of the proxy itself, administrators, the status page."""
RESERVED: Final = 24
"""Of those of the proxy, the last ones, which neither clients nor their connections to the backend take."""


class NoFilesLeft(BackendUnavailable):
    """A client's connection to the backend cannot be opened, and will not be soon."""


def file_limit() -> int:
    """The limit of this process; ``RLIM_INFINITY`` if there is none."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def files_for(clients: int) -> int:
    """The limit that so many clients need."""
    return PER_CLIENT * clients + OWN


def clients_within(limit: int) -> int:
    """How many clients a process with this limit may have, at least one."""
    return sys.maxsize if limit == resource.RLIM_INFINITY else max(1, (limit - OWN) // PER_CLIENT)


def is_reserved(number: int, limit: int) -> bool:
    """Whether the file with this number is one of the last ones."""
    return limit != resource.RLIM_INFINITY and number >= limit - RESERVED


def is_out_of_files(error: OSError) -> bool:
    """Whether the process or the system has no file left."""
    return error.errno in (errno.EMFILE, errno.ENFILE)
