"""From when until when a certificate is valid, which loading it does not check.

The standard library decodes no certificates but those of a peer.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

_BEGINS: Final = "-----BEGIN CERTIFICATE-----"
_ENDS: Final = "-----END CERTIFICATE-----"
_VERSION_TAG: Final = 0xA0
_TWO_DIGITS_TAG: Final = 0x17
"""``UTCTime``, whose year has two digits; those from 50 on are of the 20th century (RFC 5280, 4.1.2.5.1)."""
_FIELDS_BEFORE: Final = 3
"""Serial number, algorithm of the signature, issuer."""


@dataclass(frozen=True, slots=True)
class CertificateDates:
    """The first and the last moment, in UTC."""

    first: datetime
    last: datetime

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """Of the first certificate in the file, which is the one that a server shows.

        ``None`` if the file or the certificate cannot be read; whoever loads it says why.
        """
        try:
            _, begins, rest = path.read_text("ascii", "replace").partition(_BEGINS)
            return cls(*_dates(ssl.PEM_cert_to_DER_cert(begins + rest[: rest.index(_ENDS)] + _ENDS)))
        except (OSError, ValueError, IndexError):
            return None

    def trouble(self, now: datetime) -> str:
        """Why clients do not accept the certificate now; ``""`` if they do."""
        if now > self.last:
            return f"the certificate has expired on {self.last:%Y-%m-%d %H:%M:%S} UTC"
        if now < self.first:
            return f"the certificate is not valid before {self.first:%Y-%m-%d %H:%M:%S} UTC"
        return ""


def _dates(der: bytes) -> tuple[datetime, datetime]:
    _, certificate, _ = _element(der, 0)
    _, at, _ = _element(der, certificate)
    tag, _, end = _element(der, at)
    if tag == _VERSION_TAG:
        at = end
    for _ in range(_FIELDS_BEFORE):
        _, _, at = _element(der, at)
    _, validity, _ = _element(der, at)
    _, _, between = _element(der, validity)
    return _moment(der, validity), _moment(der, between)


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """The tag of the element at this place, and where its content begins and ends (X.690, 8.1)."""
    tag, length, begin = der[at], der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(der[begin : begin + size], "big")
        begin += size
    return tag, begin, begin + length


def _moment(der: bytes, at: int) -> datetime:
    tag, begin, end = _element(der, at)
    text = der[begin:end].decode("ascii")
    if tag == _TWO_DIGITS_TAG:
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
