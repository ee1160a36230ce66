"""Decides which documents can be decoded into Python values, rewritten and encoded without loss.

Only such documents are rewritten. ``bson`` turns ``undefined`` into null, a symbol into a string and a DBPointer into a
reference, sorts the flags of a regular expression, renumbers the elements of an array and drops repeated names. A
document that does not give the same bytes again is not decoded, and is sent as the client sent it.
"""

from __future__ import annotations

from typing import Any, Final

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from catalog.bson.codec import CODEC

MAX_BYTES: Final = 64 * 1024
"""Longer documents are neither decoded nor analysed, so that no command blocks the event loop."""

MAX_VALUES: Final = 700
"""Maximum number of values in all documents and arrays of a document that is analysed. Each part of a path counts as
one, because bounds are made for each (Q16)."""

MAX_LEVELS: Final = 80
"""Maximum number of nested levels of documents and arrays."""

_FEW_BYTES: Final = 512
"""A document of at most this size cannot have too many values or levels."""

_REFERENCE: Final = b"$ref\0"
"""``bson`` decodes documents with this name as ``DBRef``, which no rule handles."""

_NOT_LOOKED_INTO: Final[CodecOptions[RawBSONDocument]] = CodecOptions(
    document_class=RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS
)


class Unfaithful(ValueError):
    """The document cannot be decoded without loss, or is too large to be analysed."""


def faithfully_decoded(raw: bytes) -> dict[str, Any]:
    """The decoded document, which ``codec.encode`` turns into the same bytes again. Raises ``Unfaithful``."""
    if len(raw) > MAX_BYTES:
        raise Unfaithful(f"{len(raw)} bytes are too many to be analysed")
    if _REFERENCE in raw:
        raise Unfaithful("a reference, which would be decoded into an object")
    try:
        decoded: dict[str, Any] = bson.decode(raw, codec_options=CODEC)
        if len(raw) > _FEW_BYTES:
            _check_size(decoded)
        if bson.encode(decoded, codec_options=CODEC) != raw:
            raise Unfaithful("not the same when it is encoded again")
    except (bson.errors.BSONError, OverflowError, RecursionError) as error:
        raise Unfaithful(str(error)) from None
    return decoded


def _check_size(document: dict[str, Any]) -> None:
    values = 0
    level: list[Any] = [document]
    for _ in range(MAX_LEVELS):
        inside: list[Any] = []
        for container in level:
            values += len(container)
            elements = container
            if type(container) is dict:
                values += "\0".join(container).count(".")
                elements = container.values()
            if values > MAX_VALUES:
                raise Unfaithful("too many values to be analysed")
            inside += [element for element in elements if type(element) is dict or type(element) is list]
        if not inside:
            return
        level = inside
    raise Unfaithful("too many levels to be analysed")


class Opaque(RawBSONDocument):
    """A document that is sent unchanged and never decoded."""

    def __init__(self, raw: bytes) -> None:
        """Raises ``Unfaithful`` if the bytes are not a document."""
        try:
            super().__init__(raw, _NOT_LOOKED_INTO)
        except bson.errors.BSONError as error:
            raise Unfaithful(str(error)) from None

    def __bool__(self) -> bool:
        """True, without decoding the document."""
        return True
