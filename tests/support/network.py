"""Doubles of the event loop's side: transports that remember what happened to them."""

from __future__ import annotations

import asyncio
from typing import Any


class FakeTransport(asyncio.Transport):
    """Keeps what is written; reading may be paused, closing is remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.reading = True
        self.closed = False
        self.aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("203.0.113.9", 5) if name == "peername" else default

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class FakeClient:
    """The client's connection as an exchange sees it."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.finished = 0
        self.closed = False
        self.unsent_bytes = 0

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def finish(self) -> None:
        self.finished += 1

    def close(self) -> None:
        self.closed = True
