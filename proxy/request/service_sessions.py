"""The sessions in which the proxy's own account records retryable writes of clients (W103).

The backend tells the sessions of different users apart, but all of these are one user's. So the id of each is made of
who the client is, of its own session, and of the collection, with a secret: nobody meets the record of another, and
nobody can tell or block the id of a session that is not his.

The secret hangs on the account's credentials, which those who share the account share. So a retry finds what was
done before a restart, and through another proxy. Without an account the backend asks nobody who he is, and there is
nothing to guard.
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
"""As often as servers hash passwords: ids of sessions shall not be a shorter way to the password."""


class ServiceSessions:
    """Derives the id of a session from whose it is."""

    def __init__(self, secret: bytes) -> None:
        """``secret``: see ``session_secret``."""
        self._secret = secret

    def session_of(self, identity: Identity, lsid: bytes, namespace: Namespace) -> Mapping[str, Any]:
        """The ``lsid`` for writes to ``namespace`` on behalf of this client, whose own is ``lsid`` (raw)."""
        told = encode(
            {
                "users": [[user.name, user.database] for user in identity.users],
                "lsid": lsid,
                "namespace": [namespace.database, namespace.collection],
            }
        )
        digest = hmac.digest(self._secret, told, "sha256")
        return {"id": Binary(UUID(bytes=digest[:16], version=4).bytes, 4)}


def session_secret(uri: str) -> bytes:
    """What only holders of the account named in ``uri`` know; equal for all of them.

    For an account with a certificate that is its key, so it changes with it. Where the key cannot be read, or the
    mechanism has none, it is random, and retries of removals end with the process.
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
