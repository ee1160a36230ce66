"""Refuses logins that cannot be relayed.

With MONGODB-X509 the certificate of a TLS connection is the credential. The connection to the backend is the
proxy's, so the backend would authenticate every client as the user of the proxy's certificate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from catalog.errors import CommandError

AUTHENTICATION_FAILED: Final = 18
_MECHANISM: Final = b"MONGODB-X509"
_CERTIFICATE_COMMAND: Final = b"authenticate\0"


class _Command(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def body(self) -> bytes: ...

    @property
    def fields(self) -> Mapping[bytes, tuple[int, int, int]]: ...


def refuse_certificate_login(command: _Command) -> None:
    """Raise ``CommandError`` 18 for a login step that a certificate would decide.

    ``authenticate`` has no other use. The whole command is searched, because the backend could read a second field of
    the same name.
    """
    if command.name == "authenticate" or (command.name == "saslStart" and _MECHANISM in command.body):
        raise CommandError(
            AUTHENTICATION_FAILED,
            "MONGODB-X509 cannot be used through tsproxy: the backend sees the certificate of the proxy's connection, "
            "not the client's; log in with SCRAM-SHA-256",
        )


def speculates_with_certificate(command: _Command) -> bool:
    """Whether a hello tries such a login; the field is then ignored, as a server does when the try fails."""
    element = command.fields.get(b"speculativeAuthenticate")
    if element is None:
        return False
    # The backend could read another one of repeated fields.
    repeated = command.body.count(b"\x03speculativeAuthenticate\0") > 1
    said = command.body[element[1] : element[2]]
    return repeated or _MECHANISM in said or _CERTIFICATE_COMMAND in said
