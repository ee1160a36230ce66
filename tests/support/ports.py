"""Free TCP ports on the loopback interface."""

from __future__ import annotations

import itertools
import os
import random
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"

_FIRST: Final = 20_000
_EACH: Final = 3_000
_WORKERS: Final = 4
"""The kernel gives ports from 32,768 on to clients; these are below, and each process of a test run has its own."""


def _own_ports() -> itertools.cycle[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    first = _FIRST + worker * _EACH
    # Other runs on this machine begin elsewhere.
    turn = random.randrange(_EACH)
    return itertools.cycle([*range(first + turn, first + _EACH), *range(first, first + turn)])


_PORTS: Final = _own_ports()


def free_port() -> int:
    """A port that nobody listens on now and that is not handed out again soon."""
    for port in itertools.islice(_PORTS, _EACH):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise RuntimeError("no port is free")


def accepts(port: int, host: str = LOOPBACK, timeout_seconds: float = 1.0) -> bool:
    """Whether somebody accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=timeout_seconds):
            return True
    except OSError:
        return False


def own_address() -> str:
    """An address of this machine that is not a loopback address. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(("192.0.2.1", 9))
        return str(sender.getsockname()[0])
