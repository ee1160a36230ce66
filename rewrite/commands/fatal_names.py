"""Updates and deletes that end a server's process because of the name of the time or meta field (H17)."""

from __future__ import annotations

from typing import Final

from catalog.errors import CommandError
from catalog.namespaces import TimeseriesOptions, VirtualCollection
from rewrite.plan import ClearBuckets, PassThrough, Request
from rewrite.profile import Profile

_NOT_SUPPORTED: Final = 115

SURVIVES_EMPTY_TIME: Final = (6, 0, 27)
"""The earliest release known to survive updates where the time field has an empty name."""


def is_fatal_to_delete(options: TimeseriesOptions) -> bool:
    """Whether the backend must execute no deletes."""
    return options.meta_field == ""


def is_fatal_to_update(options: TimeseriesOptions, profile: Profile) -> bool:
    """Whether the backend must execute no updates."""
    return options.meta_field == "" or (not options.time_field and profile.version < SURVIVES_EMPTY_TIME)


def relayed(request: Request, target: VirtualCollection, *, fatal: bool) -> PassThrough:
    """The unchanged command. Raises ``CommandError`` 115 if it is fatal to execute it.

    Servers before 7.0 refuse it in a transaction, and those before 5.0.5 always (V1).
    """
    version = request.profile.version
    is_executed = version >= (7, 0, 0) or (version >= (5, 0, 5) and not request.in_transaction)
    if fatal and is_executed:
        raise _refused(target)
    return PassThrough((ClearBuckets(target.namespace),))


def refuse_fatal_explain(request: Request, target: VirtualCollection, name: str) -> None:
    """Raise ``CommandError`` 115 if the backend must not explain the command ``name``; before 7.0 it survives that."""
    # From 7.0 on, they are the same for updates and deletes.
    if name in ("delete", "update") and is_fatal_to_delete(target.options) and request.profile.version >= (7, 0, 0):
        raise _refused(target)


def _refused(target: VirtualCollection) -> CommandError:
    return CommandError(
        _NOT_SUPPORTED,
        f"the server crashes on an update or delete of {target.namespace}, whose time or meta field has an empty name; "
        "send it with known fields only, outside of a transaction and without explain",
    )
