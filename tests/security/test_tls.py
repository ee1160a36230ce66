"""TLS on both sides, with certificates made here."""

from __future__ import annotations

import datetime as dt
import shutil
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

from proxy.process.exit_codes import ExitCode
from tests.support.certificates import Certificates
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port
from tests.support.process import ProcessFailed
from tests.support.proxy import ProxyProcess, started
from tests.support.raw_wire import command


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def files(certificates: Certificates, tmp_path: Path) -> Path:
    """A folder whose files a test may replace."""
    for path in (certificates.authority, certificates.server):
        shutil.copy(path, tmp_path)
    return tmp_path


class TlsProxy(ProxyProcess):
    """Its clients trust the authority in ``files``."""

    def __init__(self, files: Path, backend: str, *flags: str) -> None:
        super().__init__(files, backend, flags=["--tls-certificate-file", str(files / "server.pem"), *flags])

    def connect(self, authority: Path, **options: Any) -> pymongo.MongoClient[dict[str, Any]]:
        options = {"tls": True, "tlsCAFile": str(authority), "serverSelectionTimeoutMS": 2_000, **options}
        return pymongo.MongoClient(f"mongodb://{self.address}/", **options)

    def certificate(self) -> bytes:
        """What the listener shows now."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with (
            socket.create_connection((LOOPBACK, self.port), timeout=5) as plain,
            context.wrap_socket(plain) as encrypted,
        ):
            return encrypted.getpeercert(binary_form=True) or b""


@pytest.fixture
def proxy_of(files: Path, mongod: MongodProcess) -> Iterator[Any]:
    started: list[TlsProxy] = []

    def start(*flags: str) -> TlsProxy:
        started.append(TlsProxy(files, mongod.uri, *flags))
        return started[-1].start()

    yield start
    for proxy in started:
        proxy.stop()


def test_clients_that_trust_the_authority_get_through(proxy_of: Any, certificates: Certificates, db_name: str) -> None:
    proxy = proxy_of()
    with proxy.connect(certificates.authority) as client:
        client[db_name].plain.insert_one({"x": "y" * 100_000})
        assert client[db_name].plain.find_one({}, {"_id": 0}) == {"x": "y" * 100_000}
        client.drop_database(db_name)
    with (
        pymongo.MongoClient(proxy.uri, serverSelectionTimeoutMS=500) as plain,
        pytest.raises(ServerSelectionTimeoutError),
    ):
        plain.admin.command("ping")


def test_admin_commands_are_encrypted_on_both_listeners(proxy_of: Any, certificates: Certificates) -> None:
    admin_address = f"{LOOPBACK}:{free_port()}"
    proxy = proxy_of("--admin-listen", admin_address)
    options = {"tls": True, "tlsCAFile": str(certificates.authority), "serverSelectionTimeoutMS": 5_000}
    with (
        proxy.connect(certificates.authority) as client,
        pymongo.MongoClient(f"mongodb://{admin_address}/", **options) as administrator,
    ):
        administrator.admin.command({"tsproxy": "pause"})
        try:
            assert client.admin.command({"tsproxy": "status"})["state"] == "paused"
            assert administrator.admin.command({"tsproxy": "status"})["state"] == "paused"
        finally:
            administrator.admin.command({"tsproxy": "resume"})
    with (
        pymongo.MongoClient(f"mongodb://{admin_address}/", serverSelectionTimeoutMS=500) as plain,
        pytest.raises(ServerSelectionTimeoutError),
    ):
        plain.admin.command({"tsproxy": "status"})


def ping(client: pymongo.MongoClient[Any]) -> str:
    """``ok``, or why the handshake failed."""
    with client:
        try:
            client.admin.command("ping")
        except ServerSelectionTimeoutError as error:
            return str(error)
    return "ok"


@pytest.mark.parametrize("mode", ["off", "optional", "required"])
def test_client_certificates(mode: str, proxy_of: Any, certificates: Certificates, tmp_path: Path) -> None:
    flags = ["--tls-client-certificates", mode]
    if mode != "off":
        flags += ["--tls-ca-file", str(certificates.authority)]
    proxy = proxy_of(*flags)
    stranger = Certificates.make(tmp_path / "stranger", "strangers")
    authority = certificates.authority
    assert ping(proxy.connect(authority, tlsCertificateKeyFile=str(certificates.client))) == "ok"
    assert (ping(proxy.connect(authority)) == "ok") is (mode != "required")
    foreign = ping(proxy.connect(authority, tlsCertificateKeyFile=str(stranger.client)))
    assert (foreign == "ok") is (mode == "off")


@pytest.mark.parametrize(("minimum", "offered", "agreed"), [("1.2", "TLSv1_2", True), ("1.3", "TLSv1_2", False)])
def test_minimum_version(minimum: str, offered: str, agreed: bool, proxy_of: Any) -> None:
    proxy = proxy_of("--tls-minimum-version", minimum)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion[offered]
    with socket.create_connection((LOOPBACK, proxy.port), timeout=5) as plain:
        if agreed:
            context.wrap_socket(plain).close()
        else:
            with pytest.raises(ssl.SSLError):
                context.wrap_socket(plain)


def test_replaced_certificate_is_used_without_restart(
    proxy_of: Any, certificates: Certificates, files: Path, tmp_path: Path
) -> None:
    """Also the authority of client certificates; open connections stay."""
    flags = ("--tls-client-certificates", "optional", "--tls-ca-file", str(files / "ca.pem"))
    proxy = proxy_of(*flags)
    newer = Certificates.make(tmp_path / "newer", "newer authority")
    with proxy.connect(certificates.authority, tlsCertificateKeyFile=str(certificates.client)) as before:
        before.admin.command("ping")
        shown = proxy.certificate()
        (files / "server.pem").write_bytes(newer.server.read_bytes())
        (files / "ca.pem").write_bytes(newer.authority.read_bytes())
        proxy.signal(signal.SIGHUP)
        proxy.wait_until(lambda: proxy.certificate() != shown)
        before.admin.command("ping")
    assert ping(proxy.connect(newer.authority, tlsCertificateKeyFile=str(newer.client))) == "ok"
    assert ping(proxy.connect(newer.authority, tlsCertificateKeyFile=str(certificates.client))) != "ok"


class Resuming:
    """A client that opens one connection after the other, and offers the TLS session of the one before."""

    def __init__(self, version: ssl.TLSVersion, certificate: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE
        self._context.minimum_version = self._context.maximum_version = version
        self._context.load_cert_chain(certificate)
        self._session: ssl.SSLSession | None = None

    def connect(self, port: int) -> str:
        """``resumed``, ``greeted`` anew, or ``refused``."""
        try:
            with (
                socket.create_connection((LOOPBACK, port), timeout=5) as plain,
                self._context.wrap_socket(plain, session=self._session) as encrypted,
            ):
                encrypted.sendall(command({"ping": 1, "$db": "admin"}))
                if not encrypted.recv(4_096):
                    return "refused"
                self._session = encrypted.session
                return "resumed" if encrypted.session_reused else "greeted"
        except OSError:
            return "refused"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_sessions_end_with_the_files_they_began_with(
    version: ssl.TLSVersion, proxy_of: Any, certificates: Certificates, files: Path, tmp_path: Path
) -> None:
    """A client of an authority that was taken away is not admitted by the TLS session from before."""
    admin_port = free_port()
    flags = ["--tls-client-certificates", "required", "--tls-ca-file", str(files / "ca.pem")]
    proxy = proxy_of(*flags, "--admin-listen", f"{LOOPBACK}:{admin_port}")
    clients = {port: Resuming(version, certificates.client) for port in (proxy.port, admin_port)}

    def replace(name: str, newer: Path) -> None:
        loaded = proxy.log.count("certificate files loaded")
        (files / name).write_bytes(newer.read_bytes())
        proxy.signal(signal.SIGHUP)
        proxy.wait_until(lambda: proxy.log.count("certificate files loaded") > loaded)

    newer = Certificates.make(tmp_path / "newer", "newer authority")
    for port, client in clients.items():
        assert [client.connect(port) for _ in range(2)] == ["greeted", "resumed"]
    replace("server.pem", newer.server)
    for port, client in clients.items():
        assert [client.connect(port) for _ in range(2)] == ["greeted", "resumed"]
    replace("ca.pem", newer.authority)
    for port, client in clients.items():
        assert client.connect(port) == "refused"
        assert Resuming(version, newer.client).connect(port) == "greeted"


def test_changed_files_are_noticed_without_a_signal(proxy_of: Any, files: Path, tmp_path: Path) -> None:
    proxy = proxy_of()
    shown = proxy.certificate()
    (files / "server.pem").write_bytes(Certificates.make(tmp_path / "newer").server.read_bytes())
    proxy.wait_until(lambda: proxy.certificate() != shown, timeout_seconds=30)


def test_key_in_a_file_of_its_own_needs_a_restart_together_with_its_certificate(
    mongod: MongodProcess, files: Path, tmp_path: Path
) -> None:
    """Until then, the certificate in use is renewed as before."""
    newer, renewed = (Certificates.make(tmp_path / name, name) for name in ("newer", "renewed"))
    key, begins, chain = newer.server.read_text().partition("-----BEGIN CERTIFICATE-----")
    (files / "own.crt").write_text(begins + chain)
    (files / "own.key").write_text(key)
    config = files / "t.toml"
    config.write_text(f"tls_certificate_file = '{files}/server.pem'\n")
    proxy = TlsProxy(files, mongod.uri)
    proxy.flags = ("--config", str(config))
    proxy.start()
    try:
        shown = proxy.certificate()
        config.write_text(
            f"tls_certificate_file = '{files}/own.crt'\ntls_key_file = '{files}/own.key'\nslow_command_ms = 55\n"
        )
        with proxy.connect(files / "ca.pem") as client:
            reply = client.admin.command({"tsproxy": "reload"})
        assert reply["changed"] == {"slow_command_ms": 55}
        assert reply["needRestart"] == ["tls_certificate_file", "tls_key_file"]
        assert proxy.certificate() == shown
        (files / "server.pem").write_bytes(renewed.server.read_bytes())
        proxy.wait_until(lambda: proxy.certificate() != shown, timeout_seconds=30)
    finally:
        proxy.stop()


def test_bad_certificate_keeps_the_last_good_one(proxy_of: Any, files: Path) -> None:
    proxy = proxy_of()
    shown = proxy.certificate()
    (files / "server.pem").write_text("-----BEGIN CERTIFICATE-----\nnonsense\n")
    proxy.signal(signal.SIGHUP)
    proxy.wait_until(lambda: "keeping the previous ones" in proxy.log)
    assert proxy.certificate() == shown
    (files / "server.pem").unlink()
    proxy.signal(signal.SIGHUP)
    proxy.wait_until(lambda: proxy.log.count("keeping the previous ones") == 2)
    assert proxy.certificate() == shown


@pytest.mark.parametrize("days", [(-10, -1), (5, 10)], ids=["expired", "not yet valid"])
def test_certificate_out_of_its_dates_does_not_replace_the_one_in_use(
    days: tuple[int, int], proxy_of: Any, certificates: Certificates, files: Path, server_directory: Path
) -> None:
    """As a mongod, which refuses to rotate to it; nobody who checks certificates could connect any more."""
    now = dt.datetime.now(dt.UTC)
    first, last = (now + dt.timedelta(days=each) for each in days)
    wrong = certificates.issuer.issue_cert(LOOPBACK, "localhost", not_before=first, not_after=last)
    native = files / "native.pem"
    shutil.copy(certificates.server, native)
    arguments = ["--tlsMode", "allowTLS", "--tlsCertificateKeyFile", str(native)]
    arguments += ["--tlsCAFile", str(certificates.authority), "--tlsAllowConnectionsWithoutCertificates"]
    server = MongodProcess(server_directory / f"rotating{days[0]}", arguments=arguments)
    try:
        with server.start().client() as client:
            client.admin.command("rotateCertificates")
            wrong.private_key_and_cert_chain_pem.write_to_path(native)
            with pytest.raises(OperationFailure, match="expired or not yet valid"):
                client.admin.command("rotateCertificates")
    finally:
        server.remove()
    proxy = proxy_of()
    shown = proxy.certificate()
    wrong.private_key_and_cert_chain_pem.write_to_path(files / "server.pem")
    proxy.signal(signal.SIGHUP)
    proxy.wait_until(lambda: "keeping the previous ones" in proxy.log)
    assert proxy.certificate() == shown
    assert ping(proxy.connect(certificates.authority)) == "ok"


def test_unusable_files_are_told_at_the_start(files: Path, mongod: MongodProcess) -> None:
    (files / "server.pem").write_text("nonsense")
    with pytest.raises(ProcessFailed, match="tls_"):
        TlsProxy(files, mongod.uri).start()


def test_handshake_that_stalls_does_not_hold_up_a_stop(proxy_of: Any, certificates: Certificates) -> None:
    """The program that is started next would be waited for: an address may be checked by connecting to it."""
    proxy = proxy_of("--shutdown-grace-seconds", "8")
    with proxy.connect(certificates.authority) as client, socket.create_connection((LOOPBACK, proxy.port)) as stalled:
        # It was accepted before this one.
        client.admin.command("ping")
        assert proxy.stop() == ExitCode.STOPPED
        assert stalled.recv(1) == b""
    assert "closing remaining client connections after the grace period" not in proxy.log


def test_idle_client_that_does_not_read_does_not_hold_up_a_stop(proxy_of: Any, certificates: Certificates) -> None:
    """As without TLS: a pooled connection reads that it was closed when it is used next, perhaps much later."""
    proxy = proxy_of("--shutdown-grace-seconds", "20")
    context = ssl.create_default_context(cafile=str(certificates.authority))
    with (
        socket.create_connection((LOOPBACK, proxy.port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as idle,
    ):
        idle.sendall(command({"ping": 1, "$db": "admin"}))
        assert idle.recv(4_096)
        assert proxy.stop() == ExitCode.STOPPED
        assert idle.recv(1) == b""
    assert "closing remaining client connections after the grace period" not in proxy.log


class EncryptedMongod(MongodProcess):
    """It lets nobody in without TLS and a certificate; ``files`` has those of its clients."""

    def __init__(self, directory: Path, *, arguments: list[str], files: Path) -> None:
        super().__init__(directory, arguments=arguments)
        self._files = files

    @property
    def uri(self) -> str:
        files = f"tlsCAFile={self._files}/ca.pem&tlsCertificateKeyFile={self._files}/client.pem"
        return f"mongodb://{self.address}/?directConnection=true&tls=true&{files}"

    def _answers(self) -> bool:
        try:
            with self.client(serverSelectionTimeoutMS=200) as client:
                return bool(client.admin.command("ping"))
        except ServerSelectionTimeoutError:
            return False


@pytest.fixture(scope="module")
def encrypted_mongod(server_directory: Path, certificates: Certificates) -> Iterator[MongodProcess]:
    """A mongod that lets nobody in without TLS and a certificate."""
    arguments = ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", str(certificates.server)]
    arguments += ["--tlsCAFile", str(certificates.authority)]
    server = EncryptedMongod(server_directory / "encrypted", arguments=arguments, files=certificates.authority.parent)
    try:
        yield server.start()
    finally:
        server.remove()


def test_backend_by_the_options_of_its_connection_string(
    encrypted_mongod: MongodProcess, tmp_path: Path, db_name: str
) -> None:
    """The service client, commits and the clients' own connections all use them."""
    proxy = ProxyProcess(tmp_path, encrypted_mongod.uri).start()
    try:
        with proxy.client() as client:
            points = client[db_name].create_collection("ts", timeseries={"timeField": "t"})
            points.insert_one({"t": dt.datetime(2024, 1, 1), "v": 1})  # noqa: DTZ001
            assert points.count_documents({}) == 1
            client[db_name].plain.insert_one({})
            client.drop_database(db_name)
    finally:
        proxy.stop()


def test_backend_certificate_is_checked(encrypted_mongod: MongodProcess, tmp_path: Path) -> None:
    stranger = Certificates.make(tmp_path / "stranger", "strangers")
    trusted = encrypted_mongod.uri
    start, _, rest = trusted.partition("tlsCAFile=")
    untrusted = f"{start}tlsCAFile={stranger.authority}&{rest.partition('&')[2]}"
    flags = ["--server-selection-timeout-ms", "2000"]
    with pytest.raises(ProcessFailed, match=r"(?i)certificate"):
        ProxyProcess(tmp_path, untrusted, flags=[*flags, "--fail-fast", "true"]).start()
    invalid = ProxyProcess(tmp_path, f"{untrusted}&tlsAllowInvalidCertificates=true", flags=flags)
    try:
        invalid.start()
    finally:
        invalid.stop()


def test_replaced_files_of_the_backend_are_used_without_restart(
    certificates: Certificates, server_directory: Path, tmp_path: Path
) -> None:
    """The authority and all its certificates, on both sides: the old ones are refused from then on."""
    newer = Certificates.make(tmp_path / "newer", "newer authority")
    names = {"ca.pem": "authority", "server.pem": "server", "client.pem": "client"}
    for name, kind in names.items():
        shutil.copy(getattr(certificates, kind), tmp_path / name)
    arguments = ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", str(tmp_path / "server.pem")]
    arguments += ["--tlsCAFile", str(tmp_path / "ca.pem")]
    server = EncryptedMongod(server_directory / "renewed", arguments=arguments, files=tmp_path)
    try:
        uri = server.start().uri
        proxy = ProxyProcess(tmp_path, uri)
        with server.client() as client, started(proxy), proxy.client(serverSelectionTimeoutMS=5_000) as before:
            before.admin.command("ping")
            for name, kind in names.items():
                shutil.copy(getattr(newer, kind), tmp_path / name)
            client.admin.command("rotateCertificates")
            proxy.signal(signal.SIGHUP)
            proxy.wait_until(lambda: "settings reloaded" in proxy.log)
            before.admin.command("ping")
            with proxy.client() as after:
                after.db.c.insert_one({})
                assert after.db.c.count_documents({}) == 1
            assert "certificate files for the backend loaded" in proxy.log
            (tmp_path / "client.pem").write_text("nonsense")
            proxy.signal(signal.SIGHUP)
            proxy.wait_until(lambda: "certificate files for the backend, keeping the previous ones" in proxy.log)
            with proxy.client() as after:
                assert after.db.c.count_documents({}) == 1
    finally:
        server.remove()
