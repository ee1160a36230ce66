"""Limits for what a peer may send, and their reasons."""

from __future__ import annotations

HEADER_SIZE_BYTES = 16
"""messageLength, requestID, responseTo, opCode: four little-endian int32."""

MAX_MESSAGE_SIZE_BYTES = 48_000_000
"""``maxMessageSizeBytes`` of every server since 2.6; a longer length in a header closes the connection."""

MIN_BSON_SIZE_BYTES = 5
"""Length and terminator: the empty document."""
