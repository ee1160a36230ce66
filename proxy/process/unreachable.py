"""Says why the backend cannot be used: which one, which host, why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pymongo.uri_parser import parse_uri

from catalog.errors import BackendUnavailable, CommandError
from proxy.backend.driver_errors import plain_reason
from proxy.backend.first_answer import AUTHENTICATION_FAILED
from proxy.settings.redaction import redact_uri

_ADDITIONS: Final[Mapping[re.Pattern[str], str]] = {
    re.compile(
        r'available for replica set name "[^"]*"'
    ): "; check replicaSet: `tsproxy doctor` says what the server is",
    re.compile(r"SSL handshake failed: [^\s,]+:(?= ?(?:,|$))"): " the server closed the connection, it may have no TLS",
}
"""What the driver leaves out, by what comes before it."""


def hosts_of(uri: str) -> str:
    """The host list of a connection string, as it is written there."""
    return uri.partition("://")[2].partition("/")[0].rpartition("@")[2]


def _login_refused(uri: str, error: CommandError) -> str:
    user, source = account_of(uri)
    return (
        f"the backend {hosts_of(uri)} refuses the login of user '{user}' (authSource {source}): "
        f"{plain_reason(error.message).rstrip('.')}; check user, password and authSource of the connection string"
    )


def account_of(uri: str) -> tuple[str, str]:
    """The user name of a connection string, and the database where it is authenticated."""
    if uri.startswith("mongodb+srv://"):  # parsing it would ask for its DNS records
        uri = f"mongodb://{uri.removeprefix('mongodb+srv://')}"
    parsed = parse_uri(uri, validate=False, warn=False)
    return parsed.get("username") or "", parsed["options"].get("authSource") or parsed.get("database") or "admin"


def unreachable(uri: str, error: CommandError) -> CommandError:
    """The error at startup, of the same kind as ``error``."""
    if error.code == AUTHENTICATION_FAILED:
        return type(error)(code=error.code, message=_login_refused(uri, error))
    hosts = hosts_of(uri)
    reason = plain_reason(error.message).replace("No servers found yet", f"{hosts} did not answer as MongoDB")
    for known, addition in _ADDITIONS.items():
        reason = known.sub(rf"\g<0>{addition}", reason)
    what = "connect to" if isinstance(error, BackendUnavailable) else "use"
    return type(error)(code=error.code, message=f"cannot {what} the backend {redact_uri(uri)}: {reason.rstrip()}")
