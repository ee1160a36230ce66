"""A prepared join is committed in a moment without readers, or abandoned."""

from __future__ import annotations

import pytest

from catalog.background.reader_barrier import committed_alone
from catalog.namespaces import Namespace
from tests.support.catalog_parts import NothingFound
from tests.support.gathering_bench import Readers

NAMESPACE = Namespace("db", "c")


class Remembered(NothingFound):
    """Remembers what becomes of it."""

    def __init__(self) -> None:
        super().__init__([2])
        self.events: list[str] = []

    async def commit(self) -> None:
        self.events.append("committed")

    async def abandon(self) -> None:
        self.events.append("abandoned")


@pytest.mark.parametrize(("are_active", "still_kept_out"), [(False, True), (True, True), (False, False)])
async def test_it_is_committed_without_readers_only(are_active: bool, still_kept_out: bool) -> None:
    prepared, readers = Remembered(), Readers()
    readers.are_active, readers.still_kept_out = are_active, still_kept_out
    is_alone = still_kept_out and not are_active
    assert await committed_alone(prepared, readers, NAMESPACE, prepared.commit) is is_alone
    assert prepared.events == ["committed" if is_alone else "abandoned"]


async def test_what_was_sent_is_not_abandoned() -> None:
    prepared = Remembered()

    async def fails() -> None:
        raise ValueError("conflict")

    with pytest.raises(ValueError, match="conflict"):
        await committed_alone(prepared, Readers(), NAMESPACE, fails)
    assert prepared.events == []
