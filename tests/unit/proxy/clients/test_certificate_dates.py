"""The dates of a certificate are read from its file, whatever form they have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from proxy.clients.certificate_dates import CertificateDates

FIRST, LAST = datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(2049, 6, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def stored(path: Path, first: datetime, last: datetime) -> Path:
    leaf = trustme.CA().issue_cert("localhost", not_before=first, not_after=last)
    leaf.private_key_and_cert_chain_pem.write_to_path(path)
    return path


@pytest.mark.parametrize("last", [LAST, datetime(2050, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)])
def test_dates_of_the_first_certificate(tmp_path: Path, last: datetime) -> None:
    path = stored(tmp_path / "one.pem", FIRST, last)
    other = stored(tmp_path / "other.pem", FIRST + SECOND, LAST - SECOND)
    path.write_bytes(path.read_bytes() + other.read_bytes())
    assert CertificateDates.of(path) == CertificateDates(FIRST, last)


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"\xff-----BEGIN CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nnonsense!\n-----END CERTIFICATE-----\n",
    ],
    ids=["missing", "empty", "cut", "without fields", "not base64"],
)
def test_what_cannot_be_read_has_no_dates(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "server.pem"
    if content is not None:
        path.write_bytes(content)
    assert CertificateDates.of(path) is None


def test_damaged_certificates_have_no_dates_or_others(tmp_path: Path) -> None:
    lines = stored(tmp_path / "whole.pem", FIRST, LAST).read_text().partition("-----BEGIN CERTIFICATE-----\n")[2]
    path = tmp_path / "damaged.pem"
    body = lines[: lines.index("-----END")].splitlines()
    for kept in range(len(body)):
        path.write_text("\n".join(["-----BEGIN CERTIFICATE-----", *body[:kept], "-----END CERTIFICATE-----\n"]))
        assert CertificateDates.of(path) in (None, CertificateDates(FIRST, LAST))


@pytest.mark.parametrize(
    ("now", "trouble"),
    [
        (FIRST - SECOND, "the certificate is not valid before 1999-12-31 23:59:59 UTC"),
        (FIRST, ""),
        (LAST, ""),
        (LAST + SECOND, "the certificate has expired on 2049-06-01 00:00:00 UTC"),
    ],
)
def test_trouble(now: datetime, trouble: str) -> None:
    assert CertificateDates(FIRST, LAST).trouble(now) == trouble
