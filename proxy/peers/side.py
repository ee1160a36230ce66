"""What both sides of a connection between proxies have in common (``proxy.peers.link``)."""

from __future__ import annotations

import asyncio
from typing import Final, cast

from proxy.peers.frames import Frame, FrameReader, Kind
from proxy.peers.handshake import Channel
from proxy.upstream.keepalive import keep_alive

MOST_UNSENT_BYTES: Final = 16 * 1024 * 1024
"""A peer that does not read what it is sent is disconnected at this size."""


class Side(asyncio.Protocol):
    """One end of a link."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._channel: Channel | None = None

    @property
    def is_open(self) -> bool:
        """Whether the other side has proved who it is, and the connection is open."""
        return self._channel is not None and self._transport is not None and not self._transport.is_closing()

    @property
    def is_unread(self) -> bool:
        """Whether the other side leaves too much unread."""
        return self._transport is not None and self._transport.get_write_buffer_size() > MOST_UNSENT_BYTES

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)
        keep_alive(transport)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        try:
            for frame in self._reader.feed(data):
                if self._channel is not None and not self._channel.is_genuine(frame):
                    raise ValueError("frame with an invalid code")
                self._take(frame)
        except ValueError as error:
            self._broken(str(error))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._transport = None
        self._broken(str(exc or "connection closed"))

    def _write(self, raw: bytes) -> None:
        if self._transport is not None:
            self._transport.write(raw)

    def _say(self, kind: Kind, said: bytes = b"") -> None:
        assert self._channel is not None
        self._write(self._channel.seal(kind, said))

    def _take(self, frame: Frame) -> None:
        raise NotImplementedError

    def _broken(self, reason: str) -> None:
        raise NotImplementedError
