"""Finds out which certificate file is invalid, and why: OpenSSL's messages show neither."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

_BEGINS_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_BEGINS_KEY: Final = b"PRIVATE KEY-----"
_MISMATCH: Final = "KEY_VALUES_MISMATCH"


def fault(certificate: Path, key: Path | None, authorities: Path | None, error: OSError | ValueError) -> str:
    """The setting, its value and what is wrong with it; ``error`` is what loading the files raised."""
    unreadable = _unreadable({"tls_certificate_file": certificate, "tls_key_file": key, "tls_ca_file": authorities})
    if unreadable:
        return unreadable
    key_name, key_path = ("tls_key_file", key) if key is not None else ("tls_certificate_file", certificate)
    if _BEGINS_CERTIFICATE not in certificate.read_bytes():
        return _invalid("tls_certificate_file", certificate, "it has no PEM certificate")
    if _BEGINS_KEY not in key_path.read_bytes():
        remedy = "" if key is not None else "; add it, or set tls_key_file"
        return _invalid(key_name, key_path, f"it has no PEM private key{remedy}")
    if getattr(error, "reason", "") == _MISMATCH:
        return _invalid(key_name, key_path, f"the key does not belong to the first certificate of {certificate}")
    if authorities is not None and not _loads(authorities):
        return _invalid("tls_ca_file", authorities, "it has no valid PEM certificate")
    return _invalid("tls_certificate_file", certificate, _words(error))


def refused(certificate: Path, trouble: str) -> str:
    """As ``fault``, for a certificate that could be loaded."""
    return _invalid("tls_certificate_file", certificate, trouble)


def _unreadable(files: dict[str, Path | None]) -> str:
    for name, path in files.items():
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            return _invalid(name, path, f"cannot read the file: {error.strerror}")
    return ""


def _loads(authorities: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(authorities)
    except (OSError, ValueError):
        return False
    return True


def _invalid(name: str, path: Path | None, reason: str) -> str:
    return f"{name} = '{path}' is not valid: {reason}"


def _words(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return getattr(error, "reason", None) or str(error.args[-1])
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
