"""One reply of all workers to an admin command: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from catalog.errors import CommandError

HOST_UNREACHABLE: Final = 6
SUMMED: Final = frozenset({"running", "held", "uncommitted", "started"})
"""Numbers of which the reply has the sum. Everything else is the same in all workers, or that of the first."""

Reply = Mapping[str, Any] | CommandError


def merged(replies: Sequence[Reply], *, any_suffices: bool) -> dict[str, Any]:
    """The reply of all; raises the first error.

    ``any_suffices``: errors do not matter if one worker has succeeded.
    """
    errors = [reply for reply in replies if isinstance(reply, CommandError)]
    found = [reply for reply in replies if not isinstance(reply, CommandError)]
    if not found or (errors and not any_suffices):
        raise errors[0] if errors else CommandError(HOST_UNREACHABLE, "no worker is running")
    together = dict(found[0])
    for name in SUMMED & together.keys():
        together[name] = sum(reply.get(name, 0) for reply in found)
    return together
