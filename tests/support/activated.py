"""A proxy on sockets that somebody else has opened, as a service manager does it (sd_listen_fds(3), sd_notify(3))."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.support.ports import LOOPBACK
from tests.support.proxy import ProxyProcess, program

# The variables name the process, so that it sets them itself, and then becomes the proxy.
_LAUNCH = """\
import os, sys
names, descriptors = sys.argv[1], [int(each) for each in sys.argv[2].split(",")]
moved = [os.dup2(each, 50 + place) for place, each in enumerate(descriptors)]
for place, each in enumerate(moved):
    os.dup2(each, 3 + place)
    os.close(each)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(moved)), LISTEN_FDNAMES=names)
os.execv(sys.argv[3], sys.argv[3:])
"""


class ActivatedProxy(ProxyProcess):
    """``tsproxy serve`` with these sockets by the name of their setting."""

    def __init__(
        self, directory: Path, backend: str | None, sockets: Mapping[str, socket.socket], **options: Any
    ) -> None:
        super().__init__(directory, backend, port=sockets["listen"].getsockname()[1], **options)
        self._sockets = dict(sockets)
        if "status_listen" in sockets:
            self.status_port = sockets["status_listen"].getsockname()[1]

    def command(self) -> list[str]:
        numbers = ",".join(str(each.fileno()) for each in self._sockets.values())
        return [sys.executable, "-c", _LAUNCH, ":".join(self._sockets), numbers, *super().command()]

    def start(self, *, wait: bool = True) -> Self:
        """Start it; with ``wait`` return when it serves, because its socket accepts before that."""
        descriptors = [each.fileno() for each in self._sockets.values()]
        self.spawn(self.command(), program()[1] | self.environment, descriptors=descriptors)
        if wait:
            self.wait_until(lambda: " ready" in self.log)
        return self


def listening() -> socket.socket:
    """A socket that listens, as a socket unit has it."""
    return socket.create_server((LOOPBACK, 0), backlog=4096)
