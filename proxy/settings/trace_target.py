"""Where spans are sent: the settings of the OpenTelemetry collector, checked without importing its library."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_LIBRARIES: Final = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")


def lacks_library() -> bool:
    """Whether a package of the extra ``tsproxy[otel]`` is missing."""
    try:
        return any(find_spec(name) is None for name in _LIBRARIES)
    except ModuleNotFoundError:
        # A package above it is missing.
        return True


def is_url(text: str) -> bool:
    """Whether ``text`` is the URL of a web server."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def headers_of(path: Path) -> Mapping[str, str]:
    """The headers in a file, ``NAME=VALUE`` in each line; empty lines and those that begin with ``#`` are left out.

    Raises ``OSError`` if the file cannot be read, and ``ValueError`` with the line that is wrong, never with its value.
    """
    try:
        lines = path.read_text().splitlines()
    except UnicodeDecodeError:
        raise ValueError("the file is not UTF-8 text") from None
    headers = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        name, value = name.strip(), value.strip()
        is_name = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not equals or not is_name or not value.isascii() or not value.isprintable():
            raise ValueError(f"line {number} is not NAME=VALUE")
        headers[name.lower()] = value
    return headers
