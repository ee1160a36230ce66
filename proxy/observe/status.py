"""The second listener: ``/metrics``, ``/livez``, ``/readyz`` and the status page over HTTP/1.1.

Small and strict: GET and HEAD without a body, one request per connection, a bounded header, a deadline. It is for
scrapers, health checks and people on a trusted network and is independent of MongoDB.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from proxy.observe.http_messages import HttpAnswer, HttpRequest, Page, encode, parse, plain
from proxy.settings.table import Address

MAX_HEAD_BYTES = 8_192
REQUEST_SECONDS = 5.0
MAX_CONNECTIONS = 100

_METRICS = b" /metrics"


async def nothing_to_do() -> None:
    """For metrics that are read when they are shown."""


class StatusServer:
    """Listens on its own address from ``start`` to ``stop``.

    ``why_not_ready`` returns the reason why the proxy is not ready, or ``""`` if it is; ``remark`` what clients must do
    without although it is, or ``""``. ``before_scrape`` is awaited before each response of ``/metrics``.
    ``before_metrics`` decides what a request may see of them. ``pages``: further paths. ``sockets``: bound ones to
    listen on, instead of the address; ``reuse_port``: other processes may listen on it, too.
    """

    def __init__(
        self,
        address: Address,
        registry: CollectorRegistry,
        why_not_ready: Callable[[], str],
        before_scrape: Callable[[], Awaitable[None]] = nothing_to_do,
        pages: Mapping[str, Page] | None = None,
        remark: Callable[[], str] = lambda: "",
        before_metrics: Callable[[HttpRequest], None] = lambda request: None,
        sockets: Sequence[socket.socket] = (),
        *,
        reuse_port: bool = False,
    ) -> None:
        self._address = address
        self._registry = registry
        self._why_not_ready = why_not_ready
        self._remark = remark
        self._before_metrics = before_metrics
        self._before_scrape = before_scrape
        self._sockets = tuple(sockets)
        self._reuse_port = reuse_port
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._paths: Mapping[str, Page] = {
            **(pages or {}),
            "/metrics": self._metrics,
            "/livez": self._livez,
            "/readyz": self._readyz,
        }

    @property
    def address(self) -> Address:
        """The address it listens on, with the actual port if 0 was configured."""
        for server in self._servers:
            for each in server.sockets:
                return Address(*each.getsockname()[:2])
        return self._address

    async def start(self) -> None:
        """Start listening; ``OSError`` if the address cannot be used."""
        if self._sockets:
            for each in self._sockets:
                self._servers.append(await asyncio.start_server(self._serve, sock=each, limit=MAX_HEAD_BYTES))
            return
        host, port = self._address.host, self._address.port
        server = await asyncio.start_server(
            self._serve, host, port, limit=MAX_HEAD_BYTES, reuse_port=self._reuse_port or None
        )
        self._servers.append(server)

    async def stop(self) -> None:
        """Stop listening and close open connections."""
        for server in self._servers:
            server.close()
        for writer in self._writers:
            writer.transport.abort()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()

    def _livez(self, request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(HTTPStatus.OK, b"ok\n")

    def _readyz(self, request: HttpRequest) -> HttpAnswer:
        reason = self._why_not_ready()
        if reason:
            return HttpAnswer(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {reason}\n".encode())
        remark = self._remark()
        return HttpAnswer(HTTPStatus.OK, f"ok\n{remark}\n".encode() if remark else b"ok\n")

    def _metrics(self, request: HttpRequest) -> HttpAnswer:
        self._before_metrics(request)
        return HttpAnswer(HTTPStatus.OK, generate_latest(self._registry), CONTENT_TYPE_LATEST)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._writers) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                if _METRICS in head.partition(b"\r\n")[0]:
                    await self._before_scrape()
                writer.write(self.respond(head, _address_of(writer)))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except asyncio.LimitOverrunError:
            writer.write(encode(plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)))
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            writer.transport.abort()  # the peer is slow or gone; nobody is there to be told
        finally:
            self._writers.discard(writer)
            writer.close()

    def respond(self, head: bytes, peer: str = "") -> bytes:
        """The response to a request with this header, including the empty line; ``peer``: the client's address."""
        parsed = parse(head, peer)
        if parsed is None:
            return encode(plain(HTTPStatus.BAD_REQUEST))
        method, request = parsed
        if method not in ("GET", "HEAD"):
            return encode(plain(HTTPStatus.METHOD_NOT_ALLOWED), extra="Allow: GET, HEAD\r\n")
        page = self._paths.get(request.path)
        answer = plain(HTTPStatus.NOT_FOUND) if page is None else page(request)
        return encode(answer, head_only=method == "HEAD")


def _address_of(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else "unknown"
