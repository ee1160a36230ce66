"""The sessions in which the proxy's own account records retryable writes of clients (W103).

The backend distinguishes the sessions of different users, but all of these belong to one user. So each id is derived
from the client's identity, its own session and the collection, with a secret: clients neither share records, nor can
they guess or block the id of another client's session.

The secret is derived from the account's credentials, so that proxies with the same account find each other's records,
also after a restart. Without an account, the backend does not authenticate anyone, and no secret is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from bson.binary import Binary
from pymongo.uri_parser import parse_uri

from catalog.bson.codec import encode
from catalog.identity import Identity
from catalog.namespaces import Namespace

_DERIVATIONS: Final = 15_000
"""As many iterations as servers use for passwords, so that session ids do not make guessing the password easier."""


class ServiceSessions:
    """Derives the ids of sessions."""

    def __init__(self, secret: bytes) -> None:
        """``secret``: see ``session_secret``."""
        self._secret = secret

    def session_of(self, identity: Identity, lsid: bytes, namespace: Namespace) -> Mapping[str, Any]:
        """The ``lsid`` for writes to ``namespace`` on behalf of this client, whose own is ``lsid`` (raw)."""
        told = {
            "users": [[user.name, user.database] for user in identity.users],
            "lsid": lsid,
            "namespace": [namespace.database, namespace.collection],
        }
        return derived_session(self._secret, told)


def derived_session(secret: bytes, told: Mapping[str, Any]) -> Mapping[str, Any]:
    """The ``lsid`` that everybody derives who knows the secret and is told the same."""
    digest = hmac.digest(secret, encode(told), "sha256")
    return {"id": Binary(UUID(bytes=digest[:16], version=4).bytes, 4)}


def session_secret(uri: str) -> bytes:
    """A secret that only holders of the account in ``uri`` know, and that is equal for all of them.

    For an account with a certificate it is derived from the key, and changes with it. If the key cannot be read, or the
    mechanism has none, it is random, and deletes cannot be retried after a restart.
    """
    parsed = parse_uri(uri, validate=False, warn=False)
    username, password = parsed.get("username"), parsed.get("password")
    options: Mapping[str, Any] = parsed.get("options", {})
    if password:
        source = options.get("authSource") or parsed.get("database") or "admin"
        salt = encode({"tsproxy": "sessions", "user": str(username), "source": str(source)})
        return hashlib.pbkdf2_hmac("sha256", str(password).encode(), salt, _DERIVATIONS)
    if not username and options.get("authMechanism") in (None, "DEFAULT"):
        return b"no account"
    try:
        key = Path(str(options["tlsCertificateKeyFile"])).read_bytes()
    except (KeyError, OSError):
        return os.urandom(32)
    return hashlib.sha256(key).digest()
