"""A catalog that grows in parts, with joining over a store that remembers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from catalog.growth import GrowthOptions
from catalog.joining import Joining
from catalog.joining_pace import JoiningOptions
from catalog.namespaces import Namespace, VirtualCollection
from catalog.ports import Span
from catalog.replacing import Differs, Forms
from tests.support.catalog_parts import CatalogBench, ScriptedStore

OPTIONS = JoiningOptions(many=8, idle_seconds=2.0, aged_seconds=10.0)


def _unexpected(fault: Differs) -> None:
    raise fault


UNTOUCHED = Forms(_unexpected)
"""Where nothing is made wrongly."""


class Nobody:
    """No reader is ever under way."""

    still_kept_out = True

    @asynccontextmanager
    async def kept_out(self, namespace: Namespace) -> AsyncIterator[bool]:
        yield True


class RememberingStore(ScriptedStore):
    """Joins everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.joins: list[tuple[bytes, bytes]] = []
        self.steps = 0
        self.refuses: bytes | None = None
        """The first id of what cannot be joined."""

    async def join(
        self, collection: VirtualCollection, spans: Sequence[Span], deadline_seconds: float
    ) -> Sequence[int | None]:
        self.steps += 1
        if self.refuses is not None and any(span.first_id == self.refuses for span in spans):
            raise ValueError("others changed them")
        self.joins += [(span.first_id, span.last_id) for span in spans]
        return [2 for _ in spans]


class JoiningBench(CatalogBench):
    def __init__(self, options: JoiningOptions = OPTIONS) -> None:
        super().__init__(growth=GrowthOptions(in_parts=True, batches_in_round=1, rows_in_place=1))
        self.store = RememberingStore()
        self.joining = Joining(self.catalog, self.store, self.clock, Nobody(), options, lambda _: None, UNTOUCHED)
