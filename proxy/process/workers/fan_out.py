"""One reply of all workers to an admin command: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from catalog.errors import CommandError

HOST_UNREACHABLE: Final = 6
SUMMED: Final = frozenset({"running", "held", "uncommitted", "started"})
"""Numbers of which the reply has the sum. Everything else is the same in all workers, or that of the first."""

STARTING: Final = {"isStarting": True}
"""What a worker replies that serves no clients yet, and will do what it was told when it does."""


@dataclass(frozen=True, slots=True)
class NotReached:
    """A worker that lives and does not answer."""

    number: int
    pid: int
    reason: str


Reply = Mapping[str, Any] | CommandError | NotReached


def merged(replies: Sequence[Reply], *, any_suffices: bool) -> dict[str, Any]:
    """The reply of those that have answered, with ``notReached`` if there are others; raises the first error.

    ``any_suffices``: errors do not matter if one worker has succeeded.
    """
    errors = [reply for reply in replies if isinstance(reply, CommandError)]
    found = [reply for reply in replies if isinstance(reply, Mapping)]
    missed = [reply for reply in replies if isinstance(reply, NotReached)]
    if not found or (errors and not any_suffices):
        if errors and not (any_suffices and missed):
            raise errors[0]
        # Where one suffices, it may have been the one that was not reached.
        described = "; ".join(f"worker {each.number} does not answer: {each.reason}" for each in missed)
        raise CommandError(HOST_UNREACHABLE, described or "no worker is running")
    together = dict(found[0])
    for name in SUMMED & together.keys():
        together[name] = sum(reply.get(name, 0) for reply in found)
    if missed:
        together["notReached"] = [{"worker": each.number, "pid": each.pid, "reason": each.reason} for each in missed]
    return together
