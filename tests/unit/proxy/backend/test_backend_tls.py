"""The TLS context that a connection string asks for, and what happens when its files are replaced."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest
import trustme
from pymongo import AsyncMongoClient
from structlog.testing import capture_logs

from proxy.backend.backend_tls import BackendFiles, context_of, tls_of
from tests.support.certificates import Certificates


async def test_options_of_tls_and_no_others_count(tmp_path: Path) -> None:
    made = Certificates.make(tmp_path)
    assert tls_of({"replicaSet": "rs0"}) is None
    context = tls_of({"tls": "true", "tlsCAFile": str(made.authority), "replicaSet": "rs0"})
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED


async def test_files_that_cannot_be_loaded() -> None:
    with pytest.raises(OSError, match="missing"):
        tls_of({"tls": "true", "tlsCAFile": "/missing"})


async def test_context_of_a_client() -> None:
    assert context_of(AsyncMongoClient("localhost", connect=False)) is None


@dataclass
class Renewed:
    """Files in a folder, a connection string with them, and the context that was made of it."""

    folder: Path
    uri: str
    context: ssl.SSLContext

    @classmethod
    def of(cls, folder: Path, made: Certificates) -> Self:
        shutil.copy(made.client, folder / "client.pem")
        shutil.copy(made.authority, folder / "ca.pem")
        options = f"tls=true&tlsCertificateKeyFile={folder}/client.pem&tlsCAFile={folder}/ca.pem&authSource=admin"
        context = tls_of(dict(each.split("=") for each in options.split("&")))
        assert context is not None
        return cls(folder, f"mongodb://user:p@localhost/?{options}", context)

    def connects(self, server: Certificates, trusted: Certificates) -> bytes:
        """The certificate that a server gets from which it requires one; empty if the handshake fails."""
        far = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        far.load_cert_chain(server.server)
        far.load_verify_locations(trusted.authority)
        far.verify_mode = ssl.CERT_REQUIRED
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = (
            self.context.wrap_bio(to_client, to_server, server_hostname="localhost"),
            far.wrap_bio(to_server, to_client, server_side=True),
        )
        for _ in range(4):
            for end in ends:
                try:
                    end.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                except ssl.SSLError:
                    return b""
        return ends[1].getpeercert(binary_form=True) or b""


async def test_replaced_files_are_loaded_into_the_context_in_use(tmp_path: Path) -> None:
    old, new = Certificates.make(tmp_path / "old"), Certificates.make(tmp_path / "new", "new authority")
    renewed = Renewed.of(tmp_path, old)
    files = BackendFiles(renewed.uri, lambda: [renewed.context])
    assert renewed.connects(old, old)
    assert not renewed.connects(new, new)
    with capture_logs() as logs:
        files.reload()
        assert logs == []
        shutil.copy(new.client, tmp_path / "client.pem")
        shutil.copy(new.authority, tmp_path / "ca.pem")
        files.reload()
        files.reload()
    assert [each["event"] for each in logs] == ["certificate files for the backend loaded"]
    assert renewed.connects(new, new)
    # The authority of before is still trusted.
    assert renewed.connects(old, new)


@pytest.mark.parametrize("kind", ["nonsense", "key of another", "missing"])
async def test_files_that_are_not_valid_change_nothing(tmp_path: Path, kind: str) -> None:
    made = Certificates.make(tmp_path / "made")
    renewed = Renewed.of(tmp_path, made)
    files = BackendFiles(renewed.uri, lambda: [renewed.context])
    before, path = renewed.connects(made, made), tmp_path / "client.pem"
    match kind:
        case "nonsense":
            path.write_text("nonsense")
        case "key of another":
            one, other = (trustme.CA().issue_cert("localhost") for _ in range(2))
            path.write_bytes(one.private_key_pem.bytes() + other.cert_chain_pems[0].bytes())
        case _:
            path.unlink()
    with capture_logs() as logs:
        files.reload()
        files.reload()
    event = "cannot load the new certificate files for the backend, keeping the previous ones"
    assert [each["event"] for each in logs] == [event]
    assert renewed.connects(made, made) == before


async def test_files_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.backend.backend_tls.WATCH_SECONDS", 0.01)
    old, new = Certificates.make(tmp_path / "old"), Certificates.make(tmp_path / "new", "new authority")
    renewed = Renewed.of(tmp_path, old)
    watching = asyncio.create_task(BackendFiles(renewed.uri, lambda: [renewed.context]).watch())
    await asyncio.sleep(0)
    shutil.copy(new.client, tmp_path / "client.pem")
    async with asyncio.timeout(10):
        while not renewed.connects(old, new):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    watching.cancel()


async def test_without_files_there_is_nothing_to_watch() -> None:
    for uri in ("", "mongodb://localhost", "mongodb+srv://db.example.org/?retryWrites=false"):
        await asyncio.wait_for(BackendFiles(uri, list).watch(), 5)
