"""The HTTP listener for scrapers and health checks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry, Gauge

from proxy.observe.status import MAX_HEAD_BYTES, StatusServer
from proxy.settings.table import Address


class Readiness:
    reason = ""

    def __call__(self) -> str:
        return self.reason


@pytest.fixture
def readiness() -> Readiness:
    return Readiness()


@pytest.fixture
async def server(readiness: Readiness) -> AsyncIterator[StatusServer]:
    registry = CollectorRegistry()
    Gauge("some_gauge", "For the test.", registry=registry).set(3)
    server = StatusServer(Address("127.0.0.1", 0), registry, readiness)
    await server.start()
    yield server
    await server.stop()


async def ask(server: StatusServer, request: bytes) -> tuple[str, bytes]:
    """Status line and body of the answer; a second request on the connection is not expected."""
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0].decode(), body


async def get(server: StatusServer, path: str) -> tuple[str, bytes]:
    return await ask(server, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def test_alive_and_ready(server: StatusServer) -> None:
    assert await get(server, "/livez") == ("HTTP/1.1 200 OK", b"ok\n")
    assert await get(server, "/readyz?verbose=1") == ("HTTP/1.1 200 OK", b"ok\n")


async def test_not_ready_tells_why_and_stays_alive(server: StatusServer, readiness: Readiness) -> None:
    readiness.reason = "backend does not answer"
    status, body = await get(server, "/readyz")
    assert status == "HTTP/1.1 503 Service Unavailable"
    assert body == b"not ready: backend does not answer\n"
    assert (await get(server, "/livez"))[0] == "HTTP/1.1 200 OK"


async def test_metrics_are_those_of_the_registry(server: StatusServer) -> None:
    status, body = await get(server, "/metrics")
    assert status == "HTTP/1.1 200 OK"
    assert b"some_gauge 3.0" in body


async def test_head_has_no_body(server: StatusServer) -> None:
    assert await ask(server, b"HEAD /livez HTTP/1.1\r\n\r\n") == ("HTTP/1.1 200 OK", b"")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /else HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        (b"POST /livez HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        (b"hello\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (b"GET  /livez HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (b"GET /livez HTTP/2\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (b"GET /" + b"x" * 2 * MAX_HEAD_BYTES, "HTTP/1.1 431 Request Header Fields Too Large"),
    ],
)
async def test_strange_requests_are_refused(server: StatusServer, request_bytes: bytes, status: str) -> None:
    assert (await ask(server, request_bytes))[0] == status


async def test_a_peer_that_says_nothing_does_not_keep_the_server_from_stopping(server: StatusServer) -> None:
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    await get(server, "/livez")
    await asyncio.wait_for(server.stop(), 20)
    assert await reader.read() == b""
    writer.close()


async def test_request_in_pieces_is_read(server: StatusServer) -> None:
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    for piece in (b"GET /li", b"vez HT", b"TP/1.1\r\n", b"\r\n"):
        writer.write(piece)
        await writer.drain()
    assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_remark_does_not_change_readiness() -> None:
    remarks = ["", "something does not work"]
    server = StatusServer(Address("127.0.0.1", 0), CollectorRegistry(), lambda: "", remark=lambda: remarks[0])
    assert server.respond(b"GET /readyz HTTP/1.1\r\n\r\n").endswith(b"\r\n\r\nok\n")
    remarks.pop(0)
    answer = server.respond(b"GET /readyz HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(b"\r\n\r\nok\nsomething does not work\n")
