"""Logs failed TLS handshakes, because asyncio closes such connections silently."""

from __future__ import annotations

import ssl

from proxy.observe.limited_log import noticed


class WatchedHandshake(ssl.SSLObject):
    """The server's side of one TLS connection (``ssl.SSLContext.sslobject_class``)."""

    def do_handshake(self) -> None:
        """As ``ssl.SSLObject.do_handshake``; the peer's address is not known here."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            reason = getattr(error, "reason", None) or str(error)
            noticed.info("TLS handshake with a client failed", reason=reason)
            raise
