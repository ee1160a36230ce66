"""What ends a connection: bytes after which the stream cannot be trusted."""

from __future__ import annotations


class ProtocolError(Exception):
    """The peer broke the wire protocol; its connection is closed without a reply, as a server does.

    Faults inside a well-framed message that a server answers with a reply are ``CommandError`` instead.
    """
