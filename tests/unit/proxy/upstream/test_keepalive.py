"""The kernel asks idle peers whether they are still there."""

from __future__ import annotations

import asyncio
import socket

from proxy.upstream.keepalive import IDLE_SECONDS, keep_alive


class _Transport(asyncio.BaseTransport):
    def __init__(self, connection: socket.socket | None) -> None:
        super().__init__({"socket": connection})


def test_tcp_connections_are_probed() -> None:
    with socket.socket() as connection:
        keep_alive(_Transport(connection))
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == IDLE_SECONDS


def test_others_are_left_alone() -> None:
    keep_alive(_Transport(None))
    with socket.socket(socket.AF_UNIX) as connection:
        keep_alive(_Transport(connection))
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
