"""A client whose primary may have left, and the next one."""

from __future__ import annotations

from proxy.relay.failover import Failover
from proxy.request.attempt import Primary
from proxy.request.session import Session
from proxy.upstream.connection import Upstream, UpstreamConnection
from proxy.upstream.dialing import Dialer


class World:
    """A server that has left, or not, and a primary that comes when it is waited for."""

    def __init__(self, *, has_left: bool = True, comes_back: bool = False) -> None:
        self.asked: list[str] = []
        self.waited = 0
        self._has_left = has_left
        self._comes_back = comes_back
        self.session = Session(1, "peer", Upstream(Dialer(self._nowhere, None, 1.0), lambda: None))
        self.failover = Failover(self._ask, self._wait)

    @staticmethod
    async def _nowhere() -> tuple[str, int]:
        raise AssertionError

    def connected(self, *, bound: bool) -> World:
        upstream = self.session.upstream
        upstream._connection = UpstreamConnection("a:1", lambda: None)
        upstream.is_bound = bound
        upstream.retire()
        return self

    async def _ask(self, address: str) -> bool:
        self.asked.append(address)
        return self._has_left

    async def _wait(self) -> None:
        self.waited += 1
        if self._comes_back:
            self.session.upstream.reinstate()

    async def way(self) -> Primary:
        return await self.failover.ask(self.session)
