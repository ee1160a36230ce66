"""What is listed, and what follows if the backend refuses it to the account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from catalog.errors import CommandError
from proxy.backend.collection_listing import CollectionListing
from proxy.backend.driver_calls import DriverCalls
from proxy.backend.least_role import least_privileges


class Refusing:
    """A backend that refuses to list collections, with this code."""

    def __init__(self, code: int = 13) -> None:
        self._code = code

    async def ask(self, request: object) -> list[dict[str, Any]]:
        raise CommandError(self._code, "refused")


async def run(database: str, body: Mapping[str, Any]) -> dict[str, Any]:
    raise AssertionError("nothing to describe")


def listing(
    privileges: Sequence[Mapping[str, Any]] | CommandError | None, *, code: int = 13, describes: bool = True
) -> CollectionListing:
    async def asked() -> Sequence[Mapping[str, Any]] | None:
        if isinstance(privileges, CommandError):
            raise privileges
        return privileges

    return CollectionListing(cast("DriverCalls", Refusing(code)), run, asked, lambda: describes)


async def test_nothing_is_listed_where_only_the_clients_rights_count() -> None:
    assert await listing(least_privileges()).collections("local", {}) == []
    assert await listing([], describes=False).collections("app", {}) == []


@pytest.mark.parametrize(
    "refused",
    [
        listing(least_privileges()),
        listing([]),
        listing(None),
        listing(CommandError(13, "not logged in")),
        listing(least_privileges(), code=89),
        listing([], code=89, describes=False),
    ],
)
async def test_other_refusals_are_errors(refused: CollectionListing) -> None:
    with pytest.raises(CommandError, match="refused"):
        await refused.collections("app", {})
