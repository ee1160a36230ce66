"""Which certificate files are taken, and what stays when new ones cannot be."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from structlog.testing import capture_logs

from proxy.clients.tls import ListenerTls, TlsOptions
from proxy.settings.config import ConfigurationError
from proxy.settings.table import Settings
from tests.support.certificates import Certificates


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


def options(certificate: Path, **more: object) -> TlsOptions:
    settings = Settings(tls_certificate_file=certificate, **more)  # type: ignore[arg-type]
    found = TlsOptions.of(settings)
    assert found is not None
    return found


def shown(tls: ListenerTls) -> bytes:
    """The certificate of a handshake in memory."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server)
    far = tls.newest().wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (near, far):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return near.getpeercert(binary_form=True) or b""


def test_without_a_certificate_there_is_no_tls() -> None:
    assert TlsOptions.of(Settings()) is None


def test_key_in_a_file_of_its_own(tmp_path: Path) -> None:
    leaf = trustme.CA().issue_cert("localhost")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    leaf.private_key_pem.write_to_path(tmp_path / "key.pem")
    assert shown(ListenerTls(options(tmp_path / "cert.pem", tls_key_file=tmp_path / "key.pem")))


def test_versions_and_client_certificates_follow_the_settings(made: Certificates) -> None:
    context = options(
        made.server, tls_minimum_version="1.3", tls_client_certificates="required", tls_ca_file=made.authority
    ).context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert options(made.server).context().minimum_version is ssl.TLSVersion.TLSv1_2


def in_use(made: Certificates, directory: Path) -> tuple[Path, ListenerTls, bytes]:
    """A certificate file that may be replaced, the context that has it, and the certificate."""
    path = directory / "server.pem"
    shutil.copy(made.server, path)
    tls = ListenerTls(options(path))
    return path, tls, shown(tls)


async def another_is_shown(tls: ListenerTls, before: bytes) -> None:
    """Wait until the certificate is another one."""
    async with asyncio.timeout(10):
        while shown(tls) == before:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("content", ["", "nonsense", None], ids=["empty", "nonsense", "missing"])
def test_unusable_file_at_the_start(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError, match="tls_"):
        ListenerTls(options(path))


def test_key_with_a_passphrase_is_refused_rather_than_asked_for(made: Certificates, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(made.server.read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    (tmp_path / "key.pem").write_bytes(locked)
    with pytest.raises(ConfigurationError, match="passphrase"):
        ListenerTls(options(made.server, tls_key_file=tmp_path / "key.pem"))


def test_new_files_are_shown_after_a_reload_and_bad_ones_never(made: Certificates, tmp_path: Path) -> None:
    path, tls, before = in_use(made, tmp_path)
    newer = Certificates.make(tmp_path / "newer")
    path.write_bytes(newer.server.read_bytes())
    assert tls.reload()
    assert shown(tls) != before
    path.write_text("nonsense")
    assert not tls.reload()
    assert shown(tls) not in (before, b"")


async def test_files_in_use_are_watched_after_others_were_not_valid(
    made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.clients.tls.WATCH_SECONDS", 0.01)
    path, tls, before = in_use(made, tmp_path)
    assert not tls.reload(options(tmp_path / "missing.pem"))
    assert shown(tls) == before
    watching = asyncio.create_task(tls.watch())
    path.write_bytes(Certificates.make(tmp_path / "newer").server.read_bytes())
    await another_is_shown(tls, before)
    watching.cancel()


def issued(path: Path, authority: trustme.CA, first: timedelta, last: timedelta) -> None:
    """A certificate that is valid between these times from now."""
    now = datetime.now(UTC)
    leaf = authority.issue_cert("localhost", not_before=now + first, not_after=now + last)
    leaf.private_key_and_cert_chain_pem.write_to_path(path)


async def test_certificate_that_is_not_valid_yet_is_used_when_it_is(
    made: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock may also have been wrong: nobody needs to write the file again."""
    monkeypatch.setattr("proxy.clients.tls.WATCH_SECONDS", 0.01)
    path, tls, before = in_use(made, tmp_path)
    issued(path, made.issuer, timedelta(seconds=2), timedelta(days=1))
    assert not tls.reload()
    assert shown(tls) == before
    watching = asyncio.create_task(tls.watch())
    await another_is_shown(tls, before)
    watching.cancel()


async def test_start_with_an_expired_certificate_is_told(made: Certificates, tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    issued(path, made.issuer, timedelta(days=-2), timedelta(days=-1))
    with capture_logs() as logs:
        watching = asyncio.create_task(ListenerTls(options(path)).watch())
        await asyncio.sleep(0)
        watching.cancel()
    assert [each["event"] for each in logs] == ["clients that check certificates cannot connect"]
    assert logs[0]["reason"].startswith(f"tls_certificate_file = '{path}' is not valid: the certificate has expired on")


def test_certificate_in_use_that_has_expired_does_not_keep_new_authorities_out(
    made: Certificates, tmp_path: Path
) -> None:
    path, authorities = tmp_path / "server.pem", tmp_path / "ca.pem"
    issued(path, made.issuer, timedelta(days=-2), timedelta(days=-1))
    shutil.copy(made.authority, authorities)
    tls = ListenerTls(options(path, tls_ca_file=authorities))
    before = tls.newest()
    authorities.write_bytes(Certificates.make(tmp_path / "newer").authority.read_bytes())
    assert tls.reload()
    assert tls.newest() is not before


def test_state_changes_when_a_file_does(made: Certificates, tmp_path: Path) -> None:
    path = tmp_path / "server.pem"
    shutil.copy(made.server, path)
    found = options(path)
    before = found.state()
    assert found.state() == before
    path.write_bytes(path.read_bytes() + b"\n")
    assert found.state() != before
    path.unlink()
    assert found.state() == ((0, 0, 0),)
