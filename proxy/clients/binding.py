"""Binds the address for clients."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack


async def bound(host: str, port: int, *, reuse_port: bool = False) -> list[socket.socket]:
    """Sockets that are bound to every address of the host and do not listen yet. The caller closes them.

    Another program that also allows the reuse of addresses can bind the same one (socket(7), SO_REUSEADDR). With
    ``reuse_port``, processes of the same user that do so, too, can listen beside this one (SO_REUSEPORT).
    Raises ``OSError``; then nothing stays bound.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    with ExitStack() as stack:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            made = stack.enter_context(socket.socket(family, kind, protocol))
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse_port:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(address)
            sockets.append(made)
        stack.pop_all()
    return sockets
