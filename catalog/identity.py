"""Who a client is to the backend, as a value: two identities are equal only when they name the same users.

Names of users and databases may hold any character, so no joined text can stand for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class User:
    """A user of one database."""

    name: str
    database: str


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """The users that one connection authenticated as, in order; none of them without authentication.

    A key of hot tables, so the hash is kept.
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
        """Whether anybody logged in."""
        return bool(self.users)


NOBODY = Identity()


def identity_of(users: Iterable[tuple[str, str]]) -> Identity:
    """Of (user, database) pairs in any order."""
    named = tuple(sorted(User(name, database) for name, database in users))
    return Identity(named) if named else NOBODY
