"""What clients get for errors of our own."""

from __future__ import annotations

from uuid import uuid4

from catalog.errors import CommandError


def new_reference() -> str:
    """What a client gets for an error, and what the log has beside it."""
    return uuid4().hex[:12]


def internal_error(doing: str, error: BaseException) -> CommandError:
    """What clients get for this error, without its text, which may quote what others have sent.

    The traceback in the log names the reference, too, if this is called before the error is reported.
    """
    reference = new_reference()
    error.add_note(f"reference {reference}")
    return CommandError(1, f"internal error while {doing}, reference {reference}")
