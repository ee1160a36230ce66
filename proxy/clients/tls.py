"""TLS for client connections, with certificate files that are reloaded when they change.

Each connection gets the context of the newest valid files. Invalid files are logged, and the previous ones stay in use;
so they do if the new certificate has expired or is not valid yet.
TLS sessions belong to a context, so none is resumed after a reload: the client shows its certificate again.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from proxy.clients.certificate_dates import CertificateDates
from proxy.clients.handshakes import WatchedContext
from proxy.clients.tls_faults import fault, refused
from proxy.settings.config import ConfigurationError
from proxy.settings.file_state import WATCH_SECONDS, FileState, state_of, watch
from proxy.settings.table import Settings

log = structlog.get_logger(__name__)

HANDSHAKE_SECONDS: Final = 10.0
"""Maximum duration of a handshake."""

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_CERTIFICATES: Final = {
    "off": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

Newest = Callable[[], ssl.SSLContext]
"""Gives the context for a connection that begins now."""


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
        """From the settings; ``None`` if TLS is disabled."""
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
        """Read the files; raises ``OSError`` (``ssl.SSLError`` is one) if they are not valid."""
        context = WatchedContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self.minimum_version]
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        # For an encrypted key, OpenSSL would ask for the passphrase on the terminal.
        context.load_cert_chain(self.certificate, self.key, password=_no_password)
        if self.authorities is not None:
            context.load_verify_locations(self.authorities)
        context.verify_mode = _CLIENT_CERTIFICATES[self.client_certificates]
        return context

    def state(self) -> FileState:
        """The state of the files."""
        return state_of(path for path in (self.certificate, self.key, self.authorities) if path is not None)


def _no_password() -> str:
    raise ssl.SSLError("the key has a passphrase, which is not supported")


class ListenerTls:
    """The context of the newest valid files."""

    def __init__(self, options: TlsOptions) -> None:
        """Raises ``ConfigurationError`` if the files are not valid."""
        self._options = options
        self._state = options.state()
        try:
            self._newest = options.context()
        except (OSError, ValueError) as error:
            raise ConfigurationError([_fault(options, error)]) from None
        self._dates = CertificateDates.of(options.certificate)
        self._refused: CertificateDates | None = None
        """Of the certificate that was not taken because of them."""

    def newest(self) -> ssl.SSLContext:
        """The context for a connection that begins now."""
        return self._newest

    def reload(self, options: TlsOptions | None = None) -> bool:
        """Reload the files, or load those of other ``options``; false if they are not valid, and nothing changes."""
        wanted = options or self._options
        state = wanted.state()
        if wanted == self._options:
            # Files that are not valid are not tried again until they change.
            self._state = state
        self._refused = None
        try:
            read = wanted.context()
        except (OSError, ValueError) as error:
            log.error("cannot load the new certificate files, keeping the previous ones", reason=_fault(wanted, error))
            return False
        dates = CertificateDates.of(wanted.certificate)
        trouble = dates.trouble(datetime.now(UTC)) if dates is not None else ""
        # The one in use may expire, and other files are replaced after that.
        if trouble and dates != self._dates:
            self._refused = dates
            reason = refused(wanted.certificate, trouble)
            log.error("cannot load the new certificate files, keeping the previous ones", reason=reason)
            return False
        self._newest, self._dates = read, dates
        self._options, self._state = wanted, state
        log.info("certificate files loaded", certificate=str(wanted.certificate))
        return True

    async def watch(self) -> None:
        """Reload when the files have changed and are then stable, so that no half-written file is read.

        Also when a certificate that was not valid yet becomes so.
        """
        self._warn()
        await watch(self._state_now, self._reload_if_needed, WATCH_SECONDS)

    def _state_now(self) -> FileState:
        """Of the files that are in use now; a reload may name others."""
        return self._options.state()

    def _reload_if_needed(self, state: FileState) -> None:
        if state != self._state or self._has_become_valid():
            self.reload()

    def _has_become_valid(self) -> bool:
        return self._refused is not None and not self._refused.trouble(datetime.now(UTC))

    def _warn(self) -> None:
        """Say so if clients will not accept the certificate that the process starts with."""
        if self._dates is not None and (trouble := self._dates.trouble(datetime.now(UTC))):
            log.warning(
                "clients that check certificates cannot connect", reason=refused(self._options.certificate, trouble)
            )


def _fault(options: TlsOptions, error: OSError | ValueError) -> str:
    return fault(options.certificate, options.key, options.authorities, error)
