from __future__ import annotations

import traceback

from catalog.internal_errors import internal_error


def test_an_internal_error_is_told_without_what_it_quotes() -> None:
    """The log has it, with the same reference."""
    error = ValueError("a value of somebody else")
    told, again = internal_error("testing", error), internal_error("testing", ValueError())
    assert told.code == 1
    assert "somebody" not in told.message
    reference = told.message.rpartition(" ")[2]
    assert f"reference {reference}" in "".join(traceback.format_exception(error))
    assert told.message != again.message
