"""The identity of a client at the backend; two identities are equal only if they have the same users.

Names of users and databases may contain any character, so a joined text would not be unique.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class User:
    """A user of one database."""

    name: str
    database: str

    def __str__(self) -> str:
        return f"{self.name}@{self.database}"


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """The users that a connection has authenticated as, sorted; empty without authentication.

    The hash is stored, because identities are keys of frequently used tables.
    """

    users: tuple[User, ...] = ()
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.users))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Identity) and self.users == other.users)

    def __bool__(self) -> bool:
        """Whether the client has logged in."""
        return bool(self.users)


NOBODY = Identity()


def identity_of(users: Iterable[tuple[str, str]]) -> Identity:
    """The identity with these (user, database) pairs, in any order."""
    named = tuple(sorted(User(name, database) for name, database in users))
    return Identity(named) if named else NOBODY
