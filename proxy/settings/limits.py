"""Limits for each user and each database, as the settings name them.

A table has an entry ``*`` for every user or database without an entry of its own. An entry of its own takes what it
does not say from ``*``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

EVERYONE: Final = "*"
"""The name of the entry for all that have none."""

MOST_WAITING: Final = 1_000
LONGEST_WAIT_MS: Final = 10_000
"""The defaults of ``max_waiting`` and ``max_wait_ms``."""
MOST_ENTRIES: Final = 1_000
"""Entries of a table; each is a label of metrics."""
LONGEST_NAME: Final = 256

_Number = Annotated[int, Meta(ge=0, le=1_000_000_000)] | None


class DatabaseLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The limits of one database. 0 = no limit; ``None`` = as for ``*``.

    ``max_commands``: at once. ``max_measurements_per_second``: inserted into time-series collections.
    ``max_waiting``: commands, and inserts, that may wait; 0 = none. ``max_wait_ms``: how long each may wait.
    """

    max_commands: _Number = None
    max_measurements_per_second: _Number = None
    max_waiting: _Number = None
    max_wait_ms: Annotated[int, Meta(ge=1, le=3_600_000)] | None = None


class UserLimits(DatabaseLimits, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """As ``DatabaseLimits``, for one user. ``max_connections``: connections that have logged in as this user."""

    max_connections: _Number = None


class EffectiveLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What applies to one user or database; 0 = no limit, except for ``max_waiting``."""

    max_connections: int = 0
    max_commands: int = 0
    max_measurements_per_second: int = 0
    max_waiting: int = MOST_WAITING
    max_wait_ms: int = LONGEST_WAIT_MS

    @property
    def limit_anything(self) -> bool:
        """Whether there is any limit."""
        return bool(self.max_connections or self.max_commands or self.max_measurements_per_second)


EntryT = TypeVar("EntryT", UserLimits, DatabaseLimits)


def effective(table: Mapping[str, EntryT], name: str) -> EffectiveLimits:
    """The limits of the user or database with this name."""
    said = {}
    for entry in (table.get(EVERYONE), table.get(name)):
        if entry is not None:
            said.update({field: value for field, value in msgspec.structs.asdict(entry).items() if value is not None})
    return EffectiveLimits(**said)


def faults(users: Mapping[str, UserLimits], databases: Mapping[str, DatabaseLimits]) -> Iterator[tuple[str, str]]:
    """The setting and the reason for each name that cannot be one."""
    for setting, names in (("user_limits", users), ("database_limits", databases)):
        if len(names) > MOST_ENTRIES:
            yield setting, f"more than {MOST_ENTRIES} entries"
        for name in names:
            if not name or len(name) > LONGEST_NAME:
                yield setting, f"a name has from 1 to {LONGEST_NAME} characters"
    for name in users:
        user, at, database = name.rpartition("@")
        if name != EVERYONE and not (user and at and database):
            yield (
                "user_limits",
                f"{name!r} is not a user; write USER@DATABASE, with the database that has the user, or *",
            )
    for name in databases:
        if name != EVERYONE and not set(name).isdisjoint('/\\. "$*\0'):
            yield "database_limits", f"{name!r} is not the name of a database, or *"
