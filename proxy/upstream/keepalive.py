"""TCP keep-alive: the kernel detects peers that have disappeared."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

IDLE_SECONDS: Final = 120
INTERVAL_SECONDS: Final = 15
PROBES: Final = 4
"""A peer that does not respond for three minutes counts as gone."""


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Enable probes on a TCP connection; others are unchanged."""
    connection = transport.get_extra_info("socket")
    if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, INTERVAL_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
