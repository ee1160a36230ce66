"""What the backend's connection string says: servers, replica set, account, TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from catalog.errors import BackendUnavailable
from proxy.backend.backend_tls import tls_of
from proxy.backend.service_auth import authenticator
from proxy.backend.service_connection import Authenticate
from proxy.process.doctor.found import Target
from proxy.process.unreachable import account_of
from proxy.settings.config import ConfigurationError
from proxy.settings.redaction import redact_uri

SRV: Final = "mongodb+srv://"


class Backend(NamedTuple):
    """How to connect to what ``target`` names."""

    target: Target
    authenticate: Authenticate | None
    tls: ssl.SSLContext | None


async def backend_of(uri: str, timeout_seconds: float) -> Backend:
    """Resolve a connection string; its DNS records and certificate files are read.

    Raises ``BackendUnavailable`` if the DNS records of a ``mongodb+srv`` string are not found in time, and
    ``ConfigurationError`` if the string or its files are not valid.
    """
    parse = partial(parse_uri, uri, validate=False, warn=False, connect_timeout=timeout_seconds)
    try:
        parsed: Mapping[str, Any] = await asyncio.to_thread(parse)
    except (PyMongoError, ValueError, OSError) as error:
        if uri.startswith(SRV):
            raise BackendUnavailable(f"cannot resolve the backend's SRV record: {redact_uri(str(error))}") from None
        raise _invalid(error) from None
    options = parsed["options"]
    try:
        authenticate, tls = authenticator(uri), tls_of(options)
    except (PyMongoError, ValueError, OSError) as error:
        raise _invalid(error) from None
    user, source = account_of(uri)
    target = Target(
        uri=redact_uri(uri),
        seeds=tuple((host, int(port or 0)) for host, port in parsed["nodelist"]),
        set_name=str(options.get("replicaSet") or ""),
        is_direct=str(options.get("directConnection", "")).lower() == "true",
        user=(user or "the certificate") if authenticate is not None else "",
        source=source,
        has_tls=tls is not None,
        verifies=tls is None or tls.verify_mode is ssl.CERT_REQUIRED,
    )
    return Backend(target, authenticate, tls)


def _invalid(error: Exception) -> ConfigurationError:
    return ConfigurationError([f"backend is not valid: {redact_uri(str(error))}"])
