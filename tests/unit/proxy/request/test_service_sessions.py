"""Sessions of the proxy's account: one for each client's session and collection, told by nobody else."""

from __future__ import annotations

from pathlib import Path

import bson

from catalog.bson.raw import fields_of
from catalog.identity import NOBODY, identity_of
from catalog.namespaces import Namespace
from proxy.request.service_sessions import ServiceSessions, session_secret

URI = "mongodb://tsproxy:p%40ss@a:1,b:2/?authSource=admin"


def test_everything_that_makes_a_client_makes_its_session() -> None:
    alice, mallory = identity_of([("a@b", "c")]), identity_of([("a", "b@c")])
    sessions = {
        bytes(ServiceSessions(secret).session_of(identity, lsid, namespace)["id"])
        for secret in (b"1", b"2")
        for identity in (NOBODY, alice, mallory)
        for lsid in (b"\x031", b"\x032")
        for namespace in (Namespace("d", "c"), Namespace("d", "e"), Namespace("d.c", "e"), Namespace("d", "c.e"))
    }
    assert len(sessions) == 2 * 3 * 2 * 4
    assert all(len(each) == 16 and each[6] >> 4 == 4 for each in sessions)


def test_the_same_client_has_the_same_session_in_every_process() -> None:
    one, other = (ServiceSessions(session_secret(URI)) for _ in range(2))
    asked = (identity_of([("u", "d")]), b"\x03raw", Namespace("d", "c"))
    assert one.session_of(*asked) == other.session_of(*asked)
    assert fields_of(bson.encode({"lsid": one.session_of(*asked)}))[b"lsid"][:1] == b"\x03"


def test_the_secret_hangs_on_the_account(tmp_path: Path) -> None:
    """Not on what the members are called, nor in which order."""
    assert session_secret(URI) == session_secret("mongodb://tsproxy:p%40ss@b:2/?authSource=admin&tls=true")
    key = tmp_path / "key.pem"
    key.write_text("one key")
    x509 = f"mongodb://a/?authMechanism=MONGODB-X509&authSource=$external&tls=true&tlsCertificateKeyFile={key}"
    secrets = [session_secret(x509)]
    assert secrets[0] == session_secret(x509)
    key.write_text("another key")
    secrets += map(
        session_secret,
        [
            URI,
            URI.replace("p%40ss", "other"),
            URI.replace("tsproxy", "other"),
            URI.replace("=admin", "=other"),
            "mongodb://a/",
            x509,
            x509.replace("key.pem", "none.pem"),
            x509.replace("key.pem", "none.pem"),
        ],
    )
    assert len(set(secrets)) == len(secrets)
    assert session_secret("mongodb://a/") == session_secret("mongodb://b:1,c:2/?replicaSet=x")
