"""The one way in which this project decodes BSON into Python values.

Dates stay 64-bit milliseconds (``DatetimeMS``), since buckets hold times that ``datetime`` cannot (W10);
binary stays ``Binary``, whatever the subtype.
"""

from __future__ import annotations

from typing import Any

from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion

CODEC: CodecOptions[dict[str, Any]] = CodecOptions(
    document_class=dict,
    tz_aware=False,
    uuid_representation=UuidRepresentation.UNSPECIFIED,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
)
