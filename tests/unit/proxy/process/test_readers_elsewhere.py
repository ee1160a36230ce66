"""Who reads past this process: proxies that hold their readers do not count, everybody else does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.process.readers_elsewhere import ReadersElsewhere


class Others:
    """What the backend shows."""

    def __init__(self, *, read: bool = False) -> None:
        self.is_read = read
        self.asked: list[tuple[str, bool, set[str]]] = []

    async def read(self, database: str, *, or_are_proxies: bool = False, but: AbstractSet[str] = frozenset()) -> bool:
        self.asked.append((database, or_are_proxies, set(but)))
        return self.is_read


class HoldingDouble:
    """Others that agree, or not."""

    lasts = True

    def __init__(self, names: set[str] | None) -> None:
        self._names = names

    def names(self) -> set[str]:
        return {"tsproxy a", "tsproxy b"}

    @asynccontextmanager
    async def held(self, database: str) -> AsyncIterator[set[str] | None]:
        yield self._names


async def alone(elsewhere: ReadersElsewhere) -> bool:
    async with elsewhere.kept_out("d") as found:
        return found


@pytest.mark.parametrize("count", [True, False])
async def test_without_links_everybody_counts(count: bool) -> None:
    others = Others()
    elsewhere = ReadersElsewhere(others, proxies_count=lambda: count)
    assert await alone(elsewhere)
    others.is_read = True
    assert not await alone(elsewhere)
    assert others.asked == [("d", count, set())] * 2
    assert elsewhere.lasts
    assert elsewhere.names() == set()


async def test_who_holds_its_readers_does_not_count() -> None:
    others = Others()
    elsewhere = ReadersElsewhere(others, proxies_count=lambda: True)
    held: Any = HoldingDouble({"tsproxy a"})
    elsewhere.ask(held)
    assert await alone(elsewhere)
    assert others.asked == [("d", True, {"tsproxy a"})]
    assert elsewhere.names() == {"tsproxy a", "tsproxy b"}
    held.lasts = False
    assert not elsewhere.lasts
    elsewhere.ask(HoldingDouble(None))  # type: ignore[arg-type]
    assert not await alone(elsewhere)
    assert len(others.asked) == 1, "one has refused"


async def test_an_account_that_may_not_ask_relies_on_the_others_alone() -> None:
    elsewhere = ReadersElsewhere(None, proxies_count=lambda: True)
    assert await alone(elsewhere)
    elsewhere.ask(HoldingDouble(None))  # type: ignore[arg-type]
    assert not await alone(elsewhere)
