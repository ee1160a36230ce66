"""Where the Unix socket of the embedded mongod is.

The proxy reaches its mongod by nothing else: while the mongod is down, any program of the machine can take its port,
but other users cannot create a socket in this directory.
"""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_NAME: Final = "mongodb-{}.sock"
"""How mongod names its socket; the port has five digits at most."""
OTHER_PARENTS: Final = ("/tmp", "/dev/shm")  # noqa: S108 - for directories that only their owner can use


class SocketDirectory:
    """The data directory, or else one of its own: paths of sockets are short, and not every file system has sockets."""

    def __init__(self, path: Path, *, is_own: bool) -> None:
        """``is_own``: whether it is there for the socket only."""
        self.path = path
        self._is_own = is_own

    @classmethod
    def of(cls, data: Path) -> SocketDirectory | None:
        """A directory for the socket of the mongod that has its data here, or ``None`` if there can be none.

        The caller has locked ``data``. Sockets that a killed mongod has left are removed.
        """
        if _takes_socket(data):
            return cls(data, is_own=False)
        found = data.stat()
        # The same after a restart, and for no other data.
        name = f"tsproxy-{os.getuid()}-{found.st_dev:x}-{found.st_ino:x}"
        for parent in dict.fromkeys((tempfile.gettempdir(), *OTHER_PARENTS)):
            path = Path(parent).absolute() / name
            if _is_private(path) and _takes_socket(path):
                return cls(path, is_own=True)
        return None

    def socket(self, port: int) -> Path:
        """The socket of a mongod with this port."""
        return self.path / _NAME.format(port)

    def remove(self) -> None:
        """Remove what is there for the socket only."""
        if self._is_own:
            with suppress(OSError):
                _remove_sockets(self.path)
                self.path.rmdir()


def _is_private(path: Path) -> bool:
    """Whether this is a directory that only this user can use; it is made if there is nothing."""
    try:
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _takes_socket(directory: Path) -> bool:
    path = directory / _NAME.format("tried")
    try:
        _remove_sockets(directory)
        with socket.socket(socket.AF_UNIX) as tried:
            tried.bind(str(path))
        path.unlink()
    except OSError:
        return False
    return True


def _remove_sockets(directory: Path) -> None:
    for left in directory.glob(_NAME.format("*")):
        left.unlink()
