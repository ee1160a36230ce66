"""Authentication of service connections, with the credentials of the backend URI.

The driver authenticates its own connections only. Service connections (``proxy.backend.service``) run the SCRAM
conversation (RFC 5802, RFC 7677) with the library ``scramp``, or authenticate with X.509.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from bson.binary import Binary
from pymongo.uri_parser import parse_uri

from catalog.bson.codec import decode, encode
from catalog.errors import BackendUnavailable
from proxy.backend.service_connection import Authenticate, ServiceConnection
from proxy.request.authorisation import PROBE

SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-1")


def authenticator(uri: str) -> Authenticate | None:
    """The function that authenticates a new service connection; ``None`` for a URI without credentials.

    Raises ``ValueError`` for a mechanism that service connections do not support.
    """
    parsed = parse_uri(uri, validate=False, warn=False)
    username, password = parsed.get("username"), parsed.get("password")
    options: Mapping[str, Any] = parsed.get("options", {})
    mechanism = options.get("authMechanism")
    if not username and mechanism in (None, "DEFAULT"):
        return None
    source = options.get("authSource") or parsed.get("database") or "admin"
    if mechanism == "MONGODB-X509":
        return _X509(username)
    if mechanism not in (None, "DEFAULT", *SCRAM_MECHANISMS):
        raise ValueError(f"authMechanism={mechanism} is not supported for the proxy's own account")
    return _Scram(str(username), str(password or ""), str(source), None if mechanism == "DEFAULT" else mechanism)


def introducing(
    name: str,
    probed: Callable[[Mapping[str, Any]], None],
    authenticate: Authenticate | None,
    further: Mapping[str, str] | None = None,
    greeted: Callable[[Mapping[str, Any]], None] = lambda reply: None,
) -> Authenticate:
    """Extends ``authenticate``: a new connection first sends its client metadata, which ``$currentOp`` shows.

    Before it authenticates, it also sends ``PROBE``, whose reply shows whether access control is enabled; ``probed``
    gets that reply. ``further`` fields of the metadata may change between connections. ``greeted`` gets the reply to
    ``hello``.
    """
    client = {
        "application": {"name": name},
        "driver": {"name": "tsproxy", "version": version("tsproxy")},
        "os": {"type": platform.system()},
    }

    async def introduce_and_authenticate(connection: ServiceConnection) -> None:
        hello = {"hello": 1, "client": {**client, **(further or {})}, "$db": "admin"}
        greeted(decode(await connection.request(encode(hello))))
        probed(decode(await connection.request(encode(PROBE))))
        if authenticate is not None:
            await authenticate(connection)

    return introduce_and_authenticate


class _X509:
    """Authenticates with the certificate of the TLS connection."""

    def __init__(self, username: str | None) -> None:
        self._username = username

    async def __call__(self, connection: ServiceConnection) -> None:
        command: dict[str, Any] = {"authenticate": 1, "mechanism": "MONGODB-X509", "$db": "$external"}
        if self._username:
            command["user"] = self._username
        await _run(connection, command)


class _Scram:
    """Authenticates with user name and password."""

    def __init__(self, username: str, password: str, source: str, mechanism: str | None) -> None:
        self._username = username
        self._password = password
        self._source = source
        self._mechanism = mechanism
        # Imported only for a backend with logins, and before the first of them.
        import scramp

        self._scramp = scramp

    async def __call__(self, connection: ServiceConnection) -> None:
        mechanism = self._mechanism or await self._negotiate(connection)
        secret = self._password
        if mechanism == "SCRAM-SHA-1":
            # For SCRAM-SHA-1, the server uses this digest instead of the password.
            digest = hashlib.md5(f"{self._username}:mongo:{self._password}".encode(), usedforsecurity=False)
            secret = digest.hexdigest()
        client = self._scramp.ScramClient([mechanism], self._username, secret)
        start = {
            "saslStart": 1,
            "mechanism": mechanism,
            "payload": Binary(client.get_client_first().encode()),
            "options": {"skipEmptyExchange": True},
            "$db": self._source,
        }
        try:
            reply = await _run(connection, start)
            client.set_server_first(bytes(reply["payload"]).decode())
            final = Binary(client.get_client_final().encode())
            conversation = reply["conversationId"]
            reply = await _run(connection, _continue(conversation, final, self._source))
            client.set_server_final(bytes(reply["payload"]).decode())
        except self._scramp.ScramException as error:
            raise BackendUnavailable(f"{connection.address}: authentication failed: {error}", code=18) from None
        while not reply["done"]:
            reply = await _run(connection, _continue(conversation, Binary(b""), self._source))

    async def _negotiate(self, connection: ServiceConnection) -> str:
        asked = {"hello": 1, "saslSupportedMechs": f"{self._source}.{self._username}", "$db": "admin"}
        offered = (await _run(connection, asked)).get("saslSupportedMechs", ())
        return next((each for each in SCRAM_MECHANISMS if each in offered), "SCRAM-SHA-1")


def _continue(conversation: object, payload: Binary, source: str) -> dict[str, Any]:
    return {"saslContinue": 1, "conversationId": conversation, "payload": payload, "$db": source}


async def _run(connection: ServiceConnection, command: Mapping[str, Any]) -> dict[str, Any]:
    reply = decode(await connection.request(encode(command)))
    if not reply.get("ok"):
        raise BackendUnavailable(
            f"{connection.address}: {reply.get('errmsg', 'refused')}", code=int(reply.get("code", 18)), labels=()
        )
    return reply
