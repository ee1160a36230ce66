"""Protocol errors: the byte stream cannot be trusted afterwards, so the connection is closed."""

from __future__ import annotations


class ProtocolError(Exception):
    """The peer violated the wire protocol; its connection is closed without a reply, as a server does.

    ``farewell`` are bytes to send before closing, to a peer that uses another protocol.
    Faults inside a well-framed message that a server answers with a reply are ``CommandError`` instead.
    """

    def __init__(self, reason: str, farewell: bytes = b"") -> None:
        super().__init__(reason)
        self.farewell = farewell
