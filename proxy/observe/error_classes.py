"""The classes of errors that clients get: what a code says about who should act."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class ErrorClass(Enum):
    """A class; its value is the label of the metric."""

    AUTHENTICATION = "authentication"
    """A login failed."""
    AUTHORISATION = "authorisation"
    """The user lacks a privilege, or nobody has logged in."""
    INVALID = "invalid_command"
    """The command, or what it names, is not valid: the application must change."""
    CONFLICT = "conflict"
    """Another operation was in the way; the application may try again."""
    DUPLICATE_KEY = "duplicate_key"
    """A document with this key exists."""
    NETWORK = "network"
    """The backend cannot be reached, or has no primary; drivers try again."""
    INTERRUPTED = "interrupted"
    """A time limit has passed, or the operation or its cursor was killed."""
    OVERLOADED = "overloaded"
    """Refused at a limit, nothing was executed; the application may try again later."""
    OTHER = "other"


_CODES: Final[Mapping[ErrorClass, tuple[int, ...]]] = {
    ErrorClass.AUTHENTICATION: (11, 18, 33, 334, 391),
    ErrorClass.AUTHORISATION: (13, 31),
    ErrorClass.INVALID: (
        *(2, 4, 5, 9, 14, 15, 16, 17, 20, 21, 22, 26, 27, 28, 34, 38, 40, 47, 48, 49, 52, 53, 54, 55, 56, 57, 58, 59),
        *(60, 61, 65, 66, 67, 68, 69, 70, 72, 73, 74, 75, 76, 79, 80, 81, 85, 86, 93, 100, 101, 103, 104, 105, 115),
        *(121, 140, 141, 166, 167, 168, 169, 171, 181, 186, 197, 207, 217, 221, 222, 223, 224, 227, 228, 229, 238),
        *(241, 242, 256, 257, 258, 259, 260, 261, 263, 267, 352, 361, 10003, 10334),
    ),
    ErrorClass.CONFLICT: (23, 46, 63, 112, 117, 150, 225, 239, 244, 246, 251, 276, 13388),
    ErrorClass.DUPLICATE_KEY: (11000, 11001, 12582),
    ErrorClass.NETWORK: (
        6,
        7,
        89,
        91,
        95,
        133,
        134,
        189,
        279,
        317,
        358,
        384,
        9001,
        10058,
        10107,
        11600,
        11602,
        13435,
        13436,
    ),
    ErrorClass.OVERLOADED: (462,),
    ErrorClass.INTERRUPTED: (24, 43, 50, 90, 175, 202, 237, 262, 290, 353, 11601),
}
_CLASSES: Final = {code: each for each, codes in _CODES.items() for code in codes}

LOCATIONS_FROM: Final = 10_000
"""Codes from here on that have no name are mostly the server's checks of what a client has sent."""


def class_of(code: int) -> ErrorClass:
    """The class of a code; ``OTHER`` for one that is not known."""
    found = _CLASSES.get(code)
    if found is not None:
        return found
    return ErrorClass.INVALID if code >= LOCATIONS_FROM else ErrorClass.OTHER
