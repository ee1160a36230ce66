"""Keeping passwords out of everything that people read: logs, errors, printed settings."""

from __future__ import annotations

import re

MASK = "***"

_URI = re.compile(r"(?:mongodb(?:\+srv)?|https?)://[^\s'\"<>]+")
# The password ends at the last "@": one that was not percent-encoded must not show either.
_USER_PASSWORD = re.compile(r"^((?:mongodb(?:\+srv)?|https?)://[^:@/?#]*):(.*)@")
_SECRET_OPTION = re.compile(
    r"([?&;](?:tlsCertificateKeyFilePassword|sslPEMPassword|proxyPassword|authMechanismProperties)=)[^&;]*",
    re.IGNORECASE,
)


def redact_uri(text: str) -> str:
    """``text`` with the secrets of every MongoDB connection string and web address in it masked.

    Works on a bare one and on any message that quotes one.
    """
    return _URI.sub(lambda found: _redact_one(found.group()), text)


def _redact_one(uri: str) -> str:
    return _SECRET_OPTION.sub(rf"\g<1>{MASK}", _USER_PASSWORD.sub(rf"\g<1>:{MASK}@", uri))
