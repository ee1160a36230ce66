"""The TLS context that the options of a connection string ask for, and its files, which may be replaced."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, cast

import structlog
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError
from pymongo.uri_parser import split_options

from proxy.settings.file_state import WATCH_SECONDS, state_of, watch

log = structlog.get_logger(__name__)

TLS_OPTIONS = ("tls", "ssl")
"""How the names of these options begin."""
_CERTIFICATE: Final = "tlsCertificateKeyFile"
_AUTHORITIES: Final = ("tlsCAFile", "tlsCRLFile")


def tls_of(options: Mapping[str, Any]) -> ssl.SSLContext | None:
    """The context, as the driver makes it from its own options; ``None`` without TLS.

    Raises ``PyMongoError`` or ``OSError`` for files that cannot be loaded.
    """
    chosen = {name: value for name, value in options.items() if name.lower().startswith(TLS_OPTIONS)}
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient("localhost", connect=False, **chosen)
    return context_of(client)


def context_of(client: AsyncMongoClient[Any]) -> ssl.SSLContext | None:
    """The context of a client; the driver has no public way to it."""
    return cast("ssl.SSLContext | None", client.options.pool_options._ssl_context)  # noqa: SLF001


class BackendFiles:
    """The certificate files of a connection string, which are loaded again when they change.

    Certificates of clients are often valid for days only. New files go into the contexts that are in use, so
    connections that begin later have them. Authorities are only added: one that is no longer in the file is trusted
    until the end. A key must be of the same kind as the one before (RSA, EC); else the one before may stay in use.
    """

    def __init__(self, uri: str, contexts: Callable[[], Collection[ssl.SSLContext]]) -> None:
        """``contexts``: those in use, which were made from this connection string."""
        options = split_options(uri.partition("?")[2], validate=False, warn=False) if "?" in uri else {}
        self._options = {name: value for name, value in options.items() if name.lower().startswith(TLS_OPTIONS)}
        known = {name.lower(): str(value) for name, value in self._options.items()}
        self._certificate = known.get(_CERTIFICATE.lower())
        self._password = known.get("tlscertificatekeyfilepassword")
        self._authorities = [known[name.lower()] for name in _AUTHORITIES if name.lower() in known]
        self._paths = [Path(path) for path in (self._certificate, *self._authorities) if path]
        self._contexts = contexts
        self._state = state_of(self._paths)

    def reload(self) -> None:
        """Load the files if they have changed; those that are not valid are logged, and change nothing."""
        state = state_of(self._paths)
        if state == self._state:
            return
        self._state = state
        try:
            # A context that refuses a key has lost the one before, so another one tries first.
            tls_of({**self._options, "tls": True})
            for context in self._contexts():
                self._load(context)
        except (PyMongoError, OSError, ValueError) as error:
            log.error(
                "cannot load the new certificate files for the backend, keeping the previous ones", reason=str(error)
            )
            return
        log.info("certificate files for the backend loaded")

    def _load(self, context: ssl.SSLContext) -> None:
        if self._certificate is not None:
            context.load_cert_chain(self._certificate, None, self._password)
        for path in self._authorities:
            context.load_verify_locations(path)

    async def watch(self) -> None:
        """Reload when the files have changed and are then stable, so that no half-written file is read."""
        if self._paths:
            await watch(lambda: state_of(self._paths), lambda _: self.reload(), WATCH_SECONDS)
