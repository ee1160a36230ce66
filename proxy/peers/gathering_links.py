"""Links the gathering of buckets of several processes (``catalog.background.gathering``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from catalog.background.absorbing import Order
from catalog.background.gathering import MOST_GIVEN_UP
from catalog.buckets.resting import Given, Rested
from proxy.peers.link import LinkLost
from proxy.peers.membership import Membership
from proxy.peers.peer import Peer
from proxy.peers.silences import Silences


class GatheringLinks:
    """Implements ``catalog.background.gathering.GatheringPeers``. The process with the smallest name gathers."""

    def __init__(self, membership: Membership, now_seconds: Callable[[], float], series_key: bytes) -> None:
        """``series_key``: see ``proxy.peers.handshake.series_key_of``."""
        self.series_key: Final = series_key
        self._membership = membership
        self._silences = Silences(now_seconds)

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

    async def give_up(self, wanted: Mapping[str, Sequence[bytes]]) -> list[Given]:
        given = await asyncio.gather(*(self._given_up(name, ids) for name, ids in wanted.items()))
        return [each for some in given for each in some]

    async def _given_up(self, name: str, ids: Sequence[bytes]) -> list[Given]:
        peer = self._peer(name)
        if peer is None or name in self._silences:
            return []
        asked = frozenset(ids[:MOST_GIVEN_UP])
        try:
            given = await peer.let_give_up(ids[:MOST_GIVEN_UP])
        except LinkLost:
            self._silences.add(name)
            return []
        return [each for each in given if each.stored_id in asked]

    def order(self, name: str, orders: Sequence[Order]) -> None:
        peer = self._peer(name)
        if peer is not None and peer.link is not None:
            peer.link.absorb(orders)

    def _peer(self, name: str) -> Peer | None:
        return self._membership.peers.get(name)
