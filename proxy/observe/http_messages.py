"""HTTP requests and answers of the status listener, as bytes and as values. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeAlias
from urllib.parse import parse_qs

TEXT: Final = "text/plain; charset=utf-8"

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""What a browser may do with an answer: load what comes from here, and never take a text for HTML."""

_ALWAYS: Final = (
    "Cache-Control: no-store\r\n"
    f"Content-Security-Policy: {POLICY}\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Connection: close\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What a page needs to know of its request. ``peer``: address of the client without the port."""

    path: str
    query: str = ""
    host: str = ""
    peer: str = ""

    def number(self, name: str) -> int:
        """The number of this name in the query; 0 if there is none."""
        try:
            texts = parse_qs(self.query, max_num_fields=10).get(name, [""])
        except ValueError:
            return 0
        text = texts[0]
        return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The response of one path."""

    status: HTTPStatus
    body: bytes
    content_type: str = TEXT


Page: TypeAlias = Callable[[HttpRequest], HttpAnswer]
"""Makes the answer of one path, at once."""


def plain(status: HTTPStatus) -> HttpAnswer:
    """An answer that only has the name of its status."""
    return HttpAnswer(status, f"{status.phrase}\n".encode())


def parse(head: bytes, peer: str) -> tuple[str, HttpRequest] | None:
    """Method and request from a header; ``None`` if it is not HTTP/1."""
    lines = head.split(b"\r\n")
    parts = lines[0].split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
        return None
    method, target, _ = (part.decode("latin-1") for part in parts)
    path, _, query = target.partition("?")
    return method, HttpRequest(path, query, _host(lines[1:]), peer)


def _host(lines: list[bytes]) -> str:
    values = [line.partition(b":")[2] for line in lines if line[:5].lower() == b"host:"]
    return values[0].strip().decode("latin-1") if len(values) == 1 else ""


def encode(answer: HttpAnswer, *, head_only: bool = False, extra: str = "") -> bytes:
    """The bytes of an answer; ``extra``: further lines of its header."""
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        f"{extra}{_ALWAYS}"
    ).encode("latin-1")
    return head if head_only else head + answer.body
