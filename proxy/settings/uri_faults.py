"""Says what is wrong with a connection string, in words that help without the driver's documents."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from proxy.settings.redaction import redact_uri

ACCOUNT_MECHANISMS: Final = ("DEFAULT", "SCRAM-SHA-256", "SCRAM-SHA-1", "MONGODB-X509")
"""How the proxy's own account may authenticate (``proxy.backend.service_auth``)."""

OPTIONS: Final = (
    "appName", "authMechanism", "authMechanismProperties", "authSource", "compressors", "connectTimeoutMS",
    "directConnection", "heartbeatFrequencyMS", "loadBalanced", "localThresholdMS", "maxIdleTimeMS", "maxPoolSize",
    "maxStalenessSeconds", "minPoolSize", "readConcernLevel", "readPreference", "readPreferenceTags", "replicaSet",
    "retryReads", "retryWrites", "serverSelectionTimeoutMS", "socketTimeoutMS", "ssl", "timeoutMS", "tls",
    "tlsAllowInvalidCertificates", "tlsAllowInvalidHostnames", "tlsCAFile", "tlsCertificateKeyFile",
    "tlsCertificateKeyFilePassword", "tlsInsecure", "waitQueueTimeoutMS", "wTimeoutMS",
)  # fmt: skip
"""Options as MongoDB spells them, which the driver does not tell."""

_ENCODE: Final = "percent-encode user and password: @ is %40, : is %3A, / is %2F"
_PLAIN: Final[Mapping[re.Pattern[str], str]] = {
    re.compile(r"Username and password must be escaped.*"): _ENCODE,
    re.compile(r"(Port .*)\. Hint: username and password must be escaped.*"): rf"\1; {_ENCODE}",
    # It is the end of a password.
    re.compile(r"Bad database name \".*@.*"): _ENCODE,
}
"""Messages of the driver that are for programmers, and what to say instead."""
_UNKNOWN: Final = re.compile(r"Unknown option: ([^.]+)\.")


def uri_fault(uri: str) -> str:
    """Why ``uri`` is not valid, without its secrets; empty if it is."""
    options = parse_qsl(uri.partition("?")[2])
    mechanism = {name.lower(): value for name, value in options}.get("authmechanism", ACCOUNT_MECHANISMS[0])
    if mechanism not in ACCOUNT_MECHANISMS:
        supported = ", ".join(ACCOUNT_MECHANISMS)
        return f"authMechanism={mechanism} is not supported for the proxy's own account; use one of {supported}"
    if uri.startswith("mongodb+srv://"):
        return ""  # only a DNS query can tell
    try:
        parse_uri(uri, warn=False)
    except OSError as error:  # a file that an option names
        return f"{error.filename}: {error.strerror}"
    except (PyMongoError, ValueError) as error:
        return redact_uri(_plain(str(error), [name for name, _ in options])).rstrip(".")
    return ""


def _plain(message: str, given: list[str]) -> str:
    """The message of the driver in plain words; ``given``: the options as they are written."""
    if found := _UNKNOWN.match(message):
        name = next((each for each in given if each.lower() == found[1]), found[1])
        known = {each.lower(): each for each in OPTIONS}
        near = difflib.get_close_matches(name.lower(), known, n=1)
        return f"unknown option {name}" + (f"; did you mean {known[near[0]]}?" if near else "")
    for pattern, text in _PLAIN.items():
        message = pattern.sub(text, message)
    return message
