"""Checks the client metadata of the first ``hello``, as a server does; nothing in it is trusted.

https://github.com/mongodb/specifications/blob/master/source/mongodb-handshake/handshake.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from catalog.bson.raw import (
    NESTED_TYPES,
    OBJECT,
    STRING,
    MalformedBSON,
    document,
    element,
    fields_of,
    iter_elements,
    string_value,
)
from catalog.errors import CommandError

MAX_BYTES: Final = 1024
"""Maximum size of the whole document, as in 6.0."""
MAX_APPLICATION_NAME_BYTES: Final = 128

OWN_PROGRAM: Final = b"tsproxy"
"""The application name of the proxy's own connections to the backend (``proxy.backend.current_op``)."""
_PREFIX: Final = b"client "

_REQUIRED: Final[Mapping[bytes, tuple[bytes, ...]]] = {b"driver": (b"name", b"version"), b"os": (b"type",)}


def check_metadata(kind: int, metadata: bytes) -> None:
    """Raise ``CommandError`` with the server's message for invalid metadata; ``kind`` is the type of the value."""
    if kind not in NESTED_TYPES:
        raise CommandError(14, "The client metadata document must be a document")
    if len(metadata) > MAX_BYTES:
        raise CommandError(185, f"The client metadata document must be less then or equal to {MAX_BYTES}bytes")
    try:
        _check(fields_of(metadata))
    except MalformedBSON as error:
        raise CommandError(22, str(error)) from None


def _check(fields: Mapping[bytes, bytes]) -> None:
    application = fields.get(b"application")
    if application is not None:
        if application[0] != OBJECT:
            raise _wrong("'application' field is required to be a BSON document")
        name = fields_of(application, 1).get(b"name")
        if name is not None:
            if name[0] != STRING:
                raise _wrong("'application.name' field must be a string")
            if len(name) - 6 > MAX_APPLICATION_NAME_BYTES:
                raise CommandError(
                    184,
                    "The 'application.name' field must be less then or equal to "
                    f"{MAX_APPLICATION_NAME_BYTES} bytes in the client metadata document",
                )
    for part, names in _REQUIRED.items():
        _check_part(part.decode(), fields.get(part), names)


def _check_part(part: str, value: bytes | None, names: tuple[bytes, ...]) -> None:
    if value is None:
        raise CommandError(183, f"Missing required sub-document '{part}' in the client metadata document")
    if value[0] != OBJECT:
        raise _wrong(f"'{part}' field is required to be a BSON document")
    inside = fields_of(value, 1)
    for name in names:
        said = inside.get(name)
        if said is None:
            raise CommandError(183, f"Missing required field '{part}.{name.decode()}' in the client metadata document")
        if said[0] != STRING:
            raise _wrong(f"'{part}.{name.decode()}' field must be a string")


def _wrong(what: str) -> CommandError:
    return CommandError(14, f"The {what} in the client metadata document")


def without_our_name(metadata: bytes) -> bytes:
    """The document, with another application name if it has that of the proxy.

    Without access control, only the name distinguishes a proxy from its clients.
    """
    application = fields_of(metadata).get(b"application")
    if application is None:
        return metadata
    name = fields_of(application, 1).get(b"name", b"")
    if not name[5:].startswith(OWN_PROGRAM):
        return metadata
    text = (_PREFIX + name[5:-1])[:MAX_APPLICATION_NAME_BYTES].decode(errors="ignore").encode()
    renamed = _replaced(application[1:], b"name", string_value(text))
    return _replaced(metadata, b"application", bytes([OBJECT]) + renamed)


def _replaced(raw: bytes, wanted: bytes, value: bytes) -> bytes:
    return document(element(name, value if name == wanted else old) for name, old in iter_elements(raw))
