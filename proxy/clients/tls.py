"""TLS towards clients: certificate files that are read again when they change.

The listener keeps one context for its whole life; during each handshake that context is exchanged for the one made
of the newest files that could be used. Files that cannot be used are reported, and the last good ones stay.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from proxy.settings.config import ConfigurationError
from proxy.settings.table import Settings

log = structlog.get_logger(__name__)

WATCH_SECONDS: Final = 5.0
"""How often the files are looked at; SIGHUP does it at once."""

HANDSHAKE_SECONDS: Final = 10.0
"""How long a client may take to agree on keys."""

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_CERTIFICATES: Final = {
    "off": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

_State = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The ``tls_*`` settings of a listener that has TLS."""

    certificate: Path
    key: Path | None
    authorities: Path | None
    client_certificates: str
    minimum_version: str

    @classmethod
    def of(cls, settings: Settings) -> TlsOptions | None:
        """From the settings; ``None`` where TLS is off."""
        if settings.tls_certificate_file is None:
            return None
        return cls(
            settings.tls_certificate_file,
            settings.tls_key_file,
            settings.tls_ca_file,
            settings.tls_client_certificates,
            settings.tls_minimum_version,
        )

    def context(self) -> ssl.SSLContext:
        """Read the files; raises ``OSError`` (``ssl.SSLError`` is one) when they cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self.minimum_version]
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        # A key that is locked would stop the process with a question on the terminal.
        context.load_cert_chain(self.certificate, self.key, password=_no_password)
        if self.authorities is not None:
            context.load_verify_locations(self.authorities)
        context.verify_mode = _CLIENT_CERTIFICATES[self.client_certificates]
        return context

    def state(self) -> _State:
        """What changes when a file is written or replaced."""
        found = []
        for path in (self.certificate, self.key, self.authorities):
            if path is not None:
                try:
                    status = path.stat()
                    found.append((status.st_ino, status.st_size, status.st_mtime_ns))
                except OSError:
                    found.append((0, 0, 0))
        return tuple(found)


def _no_password() -> str:
    raise ssl.SSLError("the key has a passphrase, which is not supported")


class ListenerTls:
    """The context of a listener, and the newest good certificate behind it."""

    def __init__(self, options: TlsOptions) -> None:
        """Raises ``ConfigurationError`` when the files cannot be used."""
        self._options = options
        self._state = options.state()
        try:
            self.context = options.context()
        except (OSError, ValueError) as error:
            raise ConfigurationError([f"cannot load the tls_* files: {_reason(error)}"]) from None
        self._newest = self.context
        self.context.sni_callback = self._exchange

    def _exchange(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Called in every handshake, whether the client names a server or not."""
        if self._newest is not context:
            connection.context = self._newest

    def reload(self) -> bool:
        """Read the files again; false when they cannot be used and the last good ones stay."""
        self._state = self._options.state()
        try:
            self._newest = self._options.context()
        except (OSError, ValueError) as error:
            log.error("cannot load the new certificate files, keeping the previous ones", reason=_reason(error))
            return False
        log.info("certificate files loaded", certificate=str(self._options.certificate))
        return True

    async def watch(self) -> None:
        """Reload when the files changed and stay as they are for a while, so that none is read half written."""
        seen = self._state
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            now = self._options.state()
            if now != self._state and now == seen:
                self.reload()
            seen = now


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return getattr(error, "reason", None) or str(error.args[-1])
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
