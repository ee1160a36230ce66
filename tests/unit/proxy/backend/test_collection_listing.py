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
    privileges: Sequence[Mapping[str, Any]] | CommandError | None,
    *,
    code: int = 13,
    describes: bool = True,
    logged_out: bool = False,
) -> CollectionListing:
    async def asked() -> Sequence[Mapping[str, Any]] | None:
        if isinstance(privileges, CommandError):
            raise privileges
        return privileges

    return CollectionListing(cast("DriverCalls", Refusing(code)), run, asked, lambda: logged_out, lambda: describes)


async def test_nothing_is_listed_where_only_the_clients_rights_count() -> None:
    assert await listing(least_privileges()).collections("local", {}) == []
    assert await listing([], describes=False).collections("app", {}) == []


async def test_what_was_relayed_for_lack_of_rights_is_told_when_there_are_some() -> None:
    class Granting(Refusing):
        async def ask(self, request: object) -> list[dict[str, Any]]:
            return await super().ask(request) if self.refuses else []

        refuses = True

    async def asked() -> Sequence[Mapping[str, Any]] | None:
        return []

    covered: list[str] = []
    backend = Granting()
    listed = CollectionListing(cast("DriverCalls", backend), run, asked, lambda: False, lambda: False, covered.append)
    assert await listed.collections("app", {}) == []
    backend.refuses = False
    for database in ("another", "app", "app"):
        assert await listed.collections(database, {}) == []
    assert covered == ["app"]


@pytest.mark.parametrize(
    "refused",
    [
        listing(least_privileges()),
        listing([]),
        listing(None),
        listing(CommandError(13, "not logged in")),
        listing(CommandError(13, "not logged in"), code=18),
        listing(CommandError(13, "not logged in"), code=89, logged_out=True),
    ],
)
async def test_what_the_account_must_be_able_to_list(refused: CollectionListing) -> None:
    with pytest.raises(CommandError, match=r"lacks a privilege .*, or is not logged in any more") as caught:
        await refused.collections("app", {})
    assert caught.value.code == 13


@pytest.mark.parametrize("describes", [True, False])
async def test_other_errors(describes: bool) -> None:
    with pytest.raises(CommandError, match="refused") as caught:
        await listing(least_privileges(), code=89, describes=describes).collections("local", {})
    assert caught.value.code == 89
