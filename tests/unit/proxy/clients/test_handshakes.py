"""A handshake that fails is logged with its reason."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.clients.tls import ListenerTls, TlsOptions
from proxy.settings.table import Settings
from tests.support.certificates import Certificates


def test_reason_of_a_failed_handshake(tmp_path: Path) -> None:
    options = TlsOptions.of(Settings(tls_certificate_file=Certificates.make(tmp_path).server))
    assert options is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = ListenerTls(options).newest().wrap_bio(incoming, outgoing, server_side=True)
    with capture_logs() as logs:
        with pytest.raises(ssl.SSLWantReadError):
            connection.do_handshake()
        assert logs == []
        incoming.write(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ssl.SSLError):
            connection.do_handshake()
    assert [(line["event"], line["reason"]) for line in logs] == [
        ("TLS handshake with a client failed", "HTTP_REQUEST")
    ]
