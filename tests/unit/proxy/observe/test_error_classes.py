"""Each code has one class, and codes that are not known have one as well."""

from __future__ import annotations

import pytest

from catalog.errors import CODE_NAMES
from proxy.observe.error_classes import ErrorClass, class_of


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (18, ErrorClass.AUTHENTICATION),
        (13, ErrorClass.AUTHORISATION),
        (9, ErrorClass.INVALID),
        (40415, ErrorClass.INVALID),
        (112, ErrorClass.CONFLICT),
        (251, ErrorClass.CONFLICT),
        (11000, ErrorClass.DUPLICATE_KEY),
        (6, ErrorClass.NETWORK),
        (10107, ErrorClass.NETWORK),
        (91, ErrorClass.NETWORK),
        (50, ErrorClass.INTERRUPTED),
        (262, ErrorClass.INTERRUPTED),
        (462, ErrorClass.OVERLOADED),
        (1, ErrorClass.OTHER),
        (-1, ErrorClass.OTHER),
        (8, ErrorClass.OTHER),
    ],
)
def test_classes(code: int, expected: ErrorClass) -> None:
    assert class_of(code) is expected


def test_codes_that_the_proxy_knows_by_name_have_a_class() -> None:
    """Only errors that say nothing about who should act are ``other``."""
    other = {name for code, name in CODE_NAMES.items() if class_of(code) is ErrorClass.OTHER}
    assert other == {"InternalError", "WriteConcernFailed", "CommandFailed"}
