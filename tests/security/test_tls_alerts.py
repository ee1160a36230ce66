"""What a client is told whose TLS handshake fails."""

from __future__ import annotations

import socket
import ssl
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pymongo
import pytest
from pymongo.errors import ServerSelectionTimeoutError

from proxy.clients.handshakes import LINGER_SECONDS
from tests.support.certificates import Certificates
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK
from tests.support.proxy import ProxyProcess, started
from tests.support.raw_wire import command

PING = command({"ping": 1, "$db": "admin"})


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("stranger"), "strangers")


@pytest.fixture(scope="module")
def proxy(
    certificates: Certificates, mongod: MongodProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProxyProcess]:
    """It requires client certificates."""
    flags = ["--tls-certificate-file", str(certificates.server), "--tls-client-certificates", "required"]
    flags += ["--tls-ca-file", str(certificates.authority)]
    with started(ProxyProcess(tmp_path_factory.mktemp("proxy"), mongod.uri, flags=flags)) as running:
        yield running


def context(certificates: Certificates, version: ssl.TLSVersion, shown: Path | None = None) -> ssl.SSLContext:
    """Of a client that trusts the authority of the certificates, speaks this version, and shows this certificate."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(certificates.authority)
    if shown is not None:
        made.load_cert_chain(shown)
    with warnings.catch_warnings():
        # Old versions are deprecated.
        warnings.simplefilter("ignore")
        if version < ssl.TLSVersion.TLSv1_2:
            made.set_ciphers("ALL:@SECLEVEL=0")
        made.minimum_version = made.maximum_version = version
    return made


def told(port: int, client: ssl.SSLContext) -> str | None:
    """The reason that the client has for the failure of its first command; ``None`` if it was sent none."""
    with socket.create_connection((LOOPBACK, port), timeout=10) as plain:
        try:
            with client.wrap_socket(plain, server_hostname="localhost") as encrypted:
                # By TLS 1.3, the client may send before the server has seen its certificate.
                encrypted.sendall(PING)
                return None if encrypted.recv(1) else "closed"
        except ssl.SSLEOFError:
            return None
        except ssl.SSLError as error:
            return str(error.reason)


NO_CERTIFICATE = {ssl.TLSVersion.TLSv1_2: "HANDSHAKE_FAILURE", ssl.TLSVersion.TLSv1_3: "CERTIFICATE_REQUIRED"}


@pytest.mark.parametrize("version", NO_CERTIFICATE)
def test_reason_is_told(
    version: ssl.TLSVersion, proxy: ProxyProcess, certificates: Certificates, stranger: Certificates
) -> None:
    without = told(proxy.port, context(certificates, version)) or ""
    assert without.endswith(f"ALERT_{NO_CERTIFICATE[version]}")
    foreign = told(proxy.port, context(certificates, version, stranger.client)) or ""
    assert foreign.endswith("ALERT_UNKNOWN_CA")
    assert told(proxy.port, context(certificates, version, certificates.client)) is None


def test_wrong_version_is_told_as_by_a_mongod(
    proxy: ProxyProcess, certificates: Certificates, server_directory: Path
) -> None:
    arguments = ["--tlsMode", "allowTLS", "--tlsCertificateKeyFile", str(certificates.server)]
    arguments += ["--tlsCAFile", str(certificates.authority)]
    native = MongodProcess(server_directory / "alerts", arguments=arguments)
    old = context(certificates, ssl.TLSVersion.TLSv1, certificates.client)
    try:
        expected = told(native.start().port, old)
    finally:
        native.remove()
    assert expected
    assert expected.endswith("ALERT_PROTOCOL_VERSION")
    assert told(proxy.port, old) == expected


def test_drivers_report_the_reason(proxy: ProxyProcess, certificates: Certificates) -> None:
    options = {"tls": True, "tlsCAFile": str(certificates.authority), "serverSelectionTimeoutMS": 2_000}
    with (
        pymongo.MongoClient[dict[str, int]](f"mongodb://{proxy.address}/", **options) as client,
        pytest.raises(ServerSelectionTimeoutError, match=r"(?i)alert certificate required|alert handshake failure"),
    ):
        client.admin.command("ping")


def open_files(proxy: ProxyProcess) -> int:
    return len(list(Path(f"/proc/{proxy.pid}/fd").iterdir()))


def test_clients_that_stay_are_closed(proxy: ProxyProcess) -> None:
    """They are told, and their file descriptors are free soon."""
    before = open_files(proxy)
    staying = [socket.create_connection((LOOPBACK, proxy.port), timeout=10) for _ in range(50)]
    for each in staying:
        each.sendall(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00")
    assert {each.recv(4_096)[:1] for each in staying} == {b"\x15"}
    assert {each.recv(1) for each in staying} == {b""}
    proxy.wait_until(lambda: open_files(proxy) <= before, 10 * LINGER_SECONDS)
    for each in staying:
        each.close()


@pytest.mark.parametrize("sent", [PING, b"GET / HTTP/1.1\r\n\r\n"], ids=["a driver", "a browser"])
def test_client_without_tls_is_closed_at_once(sent: bytes, proxy: ProxyProcess) -> None:
    """A mongod sends a driver without TLS nothing, either."""
    with socket.create_connection((LOOPBACK, proxy.port), timeout=10) as plain:
        plain.sendall(sent)
        began = time.monotonic()
        plain.recv(4_096)
        assert time.monotonic() - began < LINGER_SECONDS / 2
