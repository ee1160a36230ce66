"""Raw replies of the backend, decoded and changed for the client."""

from __future__ import annotations

from collections.abc import Callable

import bson
from bson.errors import InvalidBSON

from catalog.bson.codec import CODEC, TOLERANT
from catalog.bson.raw import document, element, fields_of, iter_elements
from rewrite.plan import Document


def retryable(reply: bytes) -> bytes:
    """A reply with the label that makes drivers retry; statements that were executed are not executed again."""
    fields = [element(name, value) for name, value in iter_elements(reply)]
    labelled = b"errorLabels" in fields_of(reply)
    return reply if labelled else document([*fields, bson.encode({"errorLabels": ["RetryableWriteError"]})[4:-1]])


def decoded(reply: bytes) -> Document:
    """A decoded reply, whose error message may quote bytes of the client that are not valid UTF-8."""
    return bson.decode(reply, codec_options=TOLERANT)


def reshaped_by(reshape: Callable[[Document], Document] | None, reply: bytes) -> bytes:
    """``reply`` after ``reshape``; raises ``InvalidBSON`` if decoding would lose information."""
    if reshape is None:
        return reply
    decoded = bson.decode(reply, codec_options=CODEC)
    if bson.encode(decoded, codec_options=CODEC) != reply:
        raise InvalidBSON("not the same when it is encoded again")
    return bson.encode(reshape(decoded), codec_options=CODEC)


def error_by(reshape: Callable[[Document], Document] | None, reply: bytes) -> bytes:
    """The error ``reply`` after ``reshape``; as it is if its message quotes bytes that are not valid UTF-8."""
    try:
        return reshaped_by(reshape, reply)
    except InvalidBSON:
        return reply
