"""Links the gathering of buckets of several processes (``catalog.gathering``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from catalog.absorbing import Order
from catalog.resting import Rested
from proxy.peers.membership import Membership
from proxy.peers.peer import Peer

MOST_AT_ONCE: Final = 5_000
"""Buckets in one message."""


class GatheringLinks:
    """Implements ``catalog.gathering.Company``. The process with the smallest name gathers."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    def gatherer(self) -> str | None:
        names = [peer.name for peer in self._membership.holders()]
        if not names:
            return None
        first = min(names)
        return "" if self._membership.own_name < first else first

    def tell(self, name: str, rested: Sequence[Rested]) -> None:
        peer = self._peer(name)
        if peer is not None and peer.link is not None:
            peer.link.rested(rested)

    async def give_up(self, name: str, ids: Sequence[bytes]) -> Sequence[bytes]:
        peer = self._peer(name)
        given: list[bytes] = []
        if peer is not None:
            left = iter(ids)
            while piece := list(islice(left, MOST_AT_ONCE)):
                given += await peer.let_give_up(piece)
        return given

    def order(self, name: str, orders: Sequence[Order]) -> None:
        peer = self._peer(name)
        if peer is not None and peer.link is not None:
            peer.link.absorb(orders)

    def _peer(self, name: str) -> Peer | None:
        return self._membership.peers.get(name)
