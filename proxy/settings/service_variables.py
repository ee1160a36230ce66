"""Recognises the environment variables that Kubernetes injects for each Service, by their form.

A Service ``tsproxy-a`` sets ``TSPROXY_A_SERVICE_HOST`` and others, which look like settings of this program. Name and
value must both fit, so that a misspelled setting is still found.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

_PROTOCOLS: Final = ("tcp", "udp", "sctp")
_LAST_PORT: Final = 65_535


def _is_address(value: str) -> bool:
    try:
        ip_address(value)
    except ValueError:
        return False
    return True


def _is_port(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= len(str(_LAST_PORT)) and 0 < int(value) <= _LAST_PORT


def _is_protocol(value: str) -> bool:
    return value in _PROTOCOLS


def _is_url(value: str) -> bool:
    protocol, _, rest = value.partition("://")
    host, _, port = rest.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return _is_protocol(protocol) and _is_address(host) and _is_port(port)


_OF_PORT: Final = r"_PORT_[1-9][0-9]{0,4}_(?:TCP|UDP|SCTP)"
_FORMS: Final[tuple[tuple[re.Pattern[str], Callable[[str], bool]], ...]] = (
    (re.compile(r"_SERVICE_HOST\Z"), _is_address),
    (re.compile(r"_SERVICE_PORT(?:_[A-Z0-9_]+)?\Z"), _is_port),
    (re.compile(rf"(?:_PORT|{_OF_PORT})\Z"), _is_url),
    (re.compile(rf"{_OF_PORT}_PROTO\Z"), _is_protocol),
    (re.compile(rf"{_OF_PORT}_PORT\Z"), _is_port),
    (re.compile(rf"{_OF_PORT}_ADDR\Z"), _is_address),
)
"""How a name ends, and what its value must be."""


def is_injected(name: str, value: str) -> bool:
    """Whether this variable has the form of those for a Service; one of the forms with the value that belongs to it."""
    return any(form.search(name) is not None and fits(value) for form, fits in _FORMS)
