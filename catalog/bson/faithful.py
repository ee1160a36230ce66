"""Which documents can be decoded into Python values, rewritten and encoded without loss.

Only such documents are rewritten. ``bson`` makes null of ``undefined``, a string of a symbol, a reference of a
DBPointer, sorts the flags of a regular expression, numbers the elements of an array anew and keeps one of two equal
names. What does not come back to the byte stays raw: it goes on as its client sent it.
"""

from __future__ import annotations

from typing import Any, Final

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument

from catalog.bson.codec import CODEC

MAX_BYTES: Final = 64 * 1024
"""Longer documents are neither decoded nor analysed, so that no command holds the event loop."""

MAX_VALUES: Final = 700
"""With more values, in all its documents and arrays together, a document is not analysed either. Each part of a path
counts as one, since bounds are made for each (Q16)."""

MAX_LEVELS: Final = 80
"""Nor with more levels of documents and arrays inside each other."""

_FEW_BYTES: Final = 512
"""So few bytes hold neither too many values nor too many levels."""

_REFERENCE: Final = b"$ref\0"
"""Documents with this name become objects of a class of their own, which no rule knows."""

_NOT_LOOKED_INTO: Final[CodecOptions[RawBSONDocument]] = CodecOptions(
    document_class=RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS
)


class Unfaithful(ValueError):
    """A document that would come back as another one, or that is too large to be analysed."""


def faithfully_decoded(raw: bytes) -> dict[str, Any]:
    """The document as Python values that ``codec.encode`` makes the same bytes of. Raises ``Unfaithful``."""
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
    """A document that is handed on to the byte and not looked into, whatever is in it."""

    def __init__(self, raw: bytes) -> None:
        """Raises ``Unfaithful`` for what is no document."""
        try:
            super().__init__(raw, _NOT_LOOKED_INTO)
        except bson.errors.BSONError as error:
            raise Unfaithful(str(error)) from None

    def __bool__(self) -> bool:
        """It says something, without being asked what."""
        return True
