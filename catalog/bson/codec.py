"""The only place that decodes BSON into Python values.

Dates stay 64-bit milliseconds (``DatetimeMS``), since buckets hold times that ``datetime`` cannot (W10);
binary stays ``Binary``, whatever the subtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion

CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    document_class=dict,
    tz_aware=False,
    uuid_representation=UuidRepresentation.UNSPECIFIED,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
)

TOLERANT: CodecOptions[dict[str, Any]] = CODEC.with_options(unicode_decode_error_handler="replace")
"""For error messages of the backend, which may contain bytes of the client that are not UTF-8."""


def decode(document: bytes) -> dict[str, Any]:
    """One document; raises ``bson.errors.InvalidBSON``."""
    return bson.decode(document, CODEC)


def encode(document: Mapping[str, Any]) -> bytes:
    """One document; raises ``bson.errors.InvalidDocument``."""
    return bson.encode(document, codec_options=CODEC)
