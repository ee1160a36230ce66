"""Each fault of a certificate file names the setting, the file and the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from proxy.clients.tls import ListenerTls, TlsOptions
from proxy.settings.config import ConfigurationError
from proxy.settings.table import Settings

LEAF, OTHER = trustme.CA().issue_cert("localhost"), trustme.CA().issue_cert("localhost")
CERTIFICATE, KEY = LEAF.cert_chain_pems[0].bytes(), LEAF.private_key_pem.bytes()
OTHER_KEY = OTHER.private_key_pem.bytes()


@pytest.mark.parametrize(
    ("certificate", "key", "authorities", "told"),
    [
        (
            b"garbage",
            None,
            None,
            "tls_certificate_file = '{}/certificate' is not valid: it has no PEM",
        ),
        (
            CERTIFICATE,
            None,
            None,
            "tls_certificate_file = '{}/certificate' is not valid: it has no PEM private key",
        ),
        (CERTIFICATE, b"garbage", None, "tls_key_file = '{}/key' is not valid: it has no PEM private key"),
        (
            CERTIFICATE,
            OTHER_KEY,
            None,
            "tls_key_file = '{}/key' is not valid: the key does not belong",
        ),
        (CERTIFICATE, KEY, b"garbage", "tls_ca_file = '{}/authorities' is not valid: it has no valid PEM"),
    ],
)
def test_fault(tmp_path: Path, certificate: bytes, key: bytes | None, authorities: bytes | None, told: str) -> None:
    paths: dict[str, Path | None] = {}
    for name, content in (("certificate", certificate), ("key", key), ("authorities", authorities)):
        paths[name] = tmp_path / name if content is not None else None
        if content is not None:
            (tmp_path / name).write_bytes(content)
    settings = Settings(
        tls_certificate_file=paths["certificate"], tls_key_file=paths["key"], tls_ca_file=paths["authorities"]
    )
    options = TlsOptions.of(settings)
    assert options is not None
    with pytest.raises(ConfigurationError) as caught:
        ListenerTls(options)
    assert caught.value.problems[0].startswith(told.format(tmp_path))
