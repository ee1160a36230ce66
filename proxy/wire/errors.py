"""What ends a connection: bytes after which the stream cannot be trusted."""

from __future__ import annotations


class ProtocolError(Exception):
    """The peer broke the wire protocol; its connection is closed without a reply, as a server does.

    ``farewell`` are bytes to send before closing, for a peer that speaks something else altogether.
    Faults inside a well-framed message that a server answers with a reply are ``CommandError`` instead.
    """

    def __init__(self, reason: str, farewell: bytes = b"") -> None:
        super().__init__(reason)
        self.farewell = farewell
