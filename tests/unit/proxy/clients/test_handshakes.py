"""A handshake that fails is logged with its reason, and the client is told."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.clients.handshakes import LINGER_SECONDS, LastWords
from proxy.clients.tls import ListenerTls, TlsOptions
from proxy.settings.table import Settings
from tests.support.certificates import Certificates


def test_reason_of_a_failed_handshake(tmp_path: Path) -> None:
    options = TlsOptions.of(Settings(tls_certificate_file=Certificates.make(tmp_path).server))
    assert options is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = ListenerTls(options).newest().wrap_bio(incoming, outgoing, server_side=True)
    with capture_logs() as logs:
        with pytest.raises(ssl.SSLWantReadError):
            connection.do_handshake()
        assert logs == []
        incoming.write(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ssl.SSLError):
            connection.do_handshake()
    assert [(line["event"], line["reason"]) for line in logs] == [
        ("TLS handshake with a client failed", "HTTP_REQUEST")
    ]


async def test_alert_is_heard_though_the_socket_is_closed() -> None:
    here, there = socket.socketpair()
    here.setblocking(False)
    said = LastWords(here)
    said.say(b"alert")
    here.close()
    # What has come without being read would reset the connection otherwise.
    there.sendall(b"more")
    heard = asyncio.create_task(said.heard())
    await asyncio.sleep(0)
    assert there.recv(9) == b"alert"
    assert there.recv(9) == b""
    there.close()
    async with asyncio.timeout(LINGER_SECONDS / 2):
        await heard
    said.close()


async def test_client_that_keeps_sending_is_not_listened_to_for_long() -> None:
    here, there = socket.socketpair()
    here.setblocking(False)
    there.setblocking(False)
    said = LastWords(here)
    said.say(b"alert")
    here.close()

    async def flood() -> None:
        while True:
            await asyncio.get_running_loop().sock_sendall(there, bytes(65_536))

    flooding = asyncio.create_task(flood())
    async with asyncio.timeout(LINGER_SECONDS / 2):
        await said.heard()
    said.close()
    assert isinstance((await asyncio.gather(flooding, return_exceptions=True))[0], ConnectionError)
    there.close()


async def test_client_that_neither_reads_nor_leaves_is_given_up() -> None:
    here, there = socket.socketpair()
    said = LastWords(here)
    said.say(b"alert")
    here.close()
    async with asyncio.timeout(3 * LINGER_SECONDS):
        await said.heard()
    said.close()
    there.close()


async def test_nothing_is_said_on_a_connection_that_is_gone() -> None:
    here, there = socket.socketpair()
    said = LastWords(here)
    here.close()
    said.say(b"alert")
    await said.heard()
    said.close()
    there.close()
