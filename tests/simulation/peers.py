"""Links between simulated proxies: real membership and asking, over links that are slow, cut and blocked."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from catalog.background.absorbing import Order
from catalog.background.gathering import Gathering
from catalog.background.joining import Joining
from catalog.buckets.resting import Given, Rested
from catalog.commit.reclaiming import Reclaiming
from catalog.commit.statements import StatementLog
from proxy.backend.current_op import Activity, Proxy
from proxy.backend.write_numbers import WriteNumbers
from proxy.observe.peer_numbers import PeerNumbers
from proxy.peers.asking import Asking
from proxy.peers.frames import (
    Answer,
    Question,
    answer_bytes,
    answers_in,
    ask_bytes,
    orders_bytes,
    orders_in,
    questions_in,
    rested_bytes,
    rested_in,
)
from proxy.peers.gathering_links import GatheringLinks
from proxy.peers.handshake import Introduction
from proxy.peers.holding import HeldHere, Holding
from proxy.peers.link import LinkLost
from proxy.peers.membership import Membership, Reactions
from proxy.peers.peer import ANSWER_SECONDS
from proxy.peers.places_told import PlacesTold
from proxy.process.readers_elsewhere import ReadersElsewhere
from proxy.readers.register import ReaderRegister
from tests.simulation.numbered import SECRET, fences_of
from tests.simulation.server import Server

WINDOW_SECONDS = 120.0
RETRY_AFTER_BLOCK_SECONDS = 10.0
"""Later than that, what was sent to a proxy that others cannot reach has been written, or never will be."""


class Network:
    """All processes that were ever started, and what is between them."""

    def __init__(self, server: Server) -> None:
        self.chance: random.Random = server.chance
        self.server = server
        self.nodes: dict[str, Node] = {}
        self.blocked: set[tuple[str, str]] = set()
        """Senders and receivers between whom nothing arrives."""
        self.slowest_seconds = 0.01

    def delay_seconds(self) -> float:
        return self.chance.random() * self.slowest_seconds

    @property
    def is_sound(self) -> bool:
        """Whether all are asked, and answer, within the time after which they are given up."""
        return not self.blocked and 2 * self.slowest_seconds < ANSWER_SECONDS

    def delivers(self, sender: Node, receiver: Node) -> bool:
        return (sender.name, receiver.name) not in self.blocked


class Inbound:
    """``proxy.peers.link.Inbound``, as the membership sees it."""

    def __init__(self, link: Link) -> None:
        self.peer = Introduction(link.near.name, link.near.port, first_place=link.near.ids.first_place)
        self.address = "simulated"
        self.heard_seconds = 0.0
        self.places = PlacesTold()
        self.asked: dict[int, asyncio.Future[bool]] = {}
        self._link = link

    def held(self, number: int, *, is_granted: bool) -> None:
        answer = self.asked.get(number)
        if answer is not None and not answer.done():
            answer.set_result(is_granted)

    def close(self) -> None:
        self._link.close(by_far=True)


class Link:
    """``proxy.peers.link.Link``, as the membership sees it."""

    def __init__(self, network: Network, near: Node, far: Node) -> None:
        self.network = network
        self.near = near
        self.far = far
        self.is_open = True
        """As the near side knows: what comes from the far one may not arrive, not even that it has closed."""
        self._is_cut = False
        """Whether a side has closed it."""
        self.lost: Callable[[], None] = lambda: None
        self.peer = Introduction(far.name, far.port, keeps_readers=True, first_place=far.ids.first_place)
        self.inbound = Inbound(self)
        self._latest_arrival_seconds = 0.0
        near.links.append(self)
        far.links.append(self)
        far.members.linked(self.inbound)  # type: ignore[arg-type]

    async def _there(self) -> None:
        """To the far side; for ever if the network is blocked and the near side closes nothing."""
        await asyncio.sleep(self.network.delay_seconds())
        await self._delivered(self.near, self.far)

    async def _back(self) -> None:
        await asyncio.sleep(self.network.delay_seconds())
        await self._delivered(self.far, self.near)

    async def _delivered(self, sender: Node, receiver: Node) -> None:
        while self.is_open and (self._is_cut or not self.network.delivers(sender, receiver)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        if not self.is_open:
            raise LinkLost("cut")

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        said = ask_bytes(questions)
        await self._there()
        self.far.members.heard(self.inbound)  # type: ignore[arg-type]
        answers = answer_bytes(self.far.asking.answer(self.near.name, questions_in(said)))
        await self._back()
        return answers_in(answers)

    async def hold(self, number: int, database: str) -> bool:
        await self._arrive()
        inbound = self.inbound
        self.far.members.heard(inbound)  # type: ignore[arg-type]
        answer = inbound.asked[number] = asyncio.get_running_loop().create_future()
        self.far.held_here.ask(inbound, number, database)  # type: ignore[arg-type]
        try:
            is_granted = await answer
        finally:
            inbound.asked.pop(number, None)
        await self._back()
        return is_granted

    def release(self, number: int) -> None:
        self.near.spawn(self._release(number))

    async def _release(self, number: int) -> None:
        try:
            await self._arrive()
        except LinkLost:
            return
        self.far.held_here.release(self.inbound, number)  # type: ignore[arg-type]

    async def _arrive(self) -> None:
        """One way, in the order in which it was sent."""
        loop = asyncio.get_running_loop()
        self._latest_arrival_seconds = max(
            loop.time() + self.network.delay_seconds(), self._latest_arrival_seconds + 1e-6
        )
        await asyncio.sleep(self._latest_arrival_seconds - loop.time())
        await self._delivered(self.near, self.far)

    def rested(self, rested: Sequence[Rested]) -> None:
        said = rested_bytes(rested)
        self.near.spawn(self._said(lambda: self.far.gathering.told(self.near.name, rested_in(said))))

    async def give_up(self, ids: Sequence[bytes]) -> list[Given]:
        await self._arrive()
        self.far.members.heard(self.inbound)  # type: ignore[arg-type]
        given = self.far.gathering.give_up(ids)
        await self._back()
        return given

    def absorb(self, orders: Sequence[Order]) -> None:
        said = orders_bytes(orders)
        self.near.spawn(self._said(lambda: self.far.gathering.ordered(orders_in(said))))

    async def _said(self, heard: Callable[[], None]) -> None:
        try:
            await self._arrive()
        except LinkLost:
            return
        self.far.members.heard(self.inbound)  # type: ignore[arg-type]
        heard()

    def ping(self, places: int) -> None:
        self.near.spawn(self._ping(places))

    async def _ping(self, places: int) -> None:
        try:
            await self._there()
        except LinkLost:
            return
        inbound = self.inbound
        self.far.members.heard(inbound)  # type: ignore[arg-type]
        inbound.places.pinged(places, inbound.heard_seconds)

    def close(self, *, by_far: bool = False) -> None:
        """The side that closes it notices in its time, the other one not before the network lets it."""
        if self._is_cut:
            return
        self._is_cut = True
        if not by_far:
            self.is_open = False
        for node in (self.near, self.far):
            node.links.remove(self)
        delay_seconds, loop = self.network.delay_seconds, asyncio.get_running_loop()
        loop.call_later(delay_seconds(), self._tell_near, by_far)
        loop.call_later(delay_seconds(), self._tell_far, by_far)

    def _tell_near(self, by_far: bool) -> None:
        if by_far and self.near.is_alive and not self.network.delivers(self.far, self.near):
            asyncio.get_running_loop().call_later(0.1, self._tell_near, by_far)
            return
        self.is_open = False
        for answer in self.inbound.asked.values():
            if not answer.done():
                answer.set_exception(LinkLost("cut"))
        if self.near.is_alive:
            self.lost()

    def _tell_far(self, by_far: bool) -> None:
        if not self.far.is_alive:
            return
        if by_far or self.network.delivers(self.near, self.far):
            self.far.held_here.unlinked(self.inbound)  # type: ignore[arg-type]
            self.far.members.unlinked(self.inbound)  # type: ignore[arg-type]
        else:
            asyncio.get_running_loop().call_later(0.1, self._tell_far, by_far)


class Node:
    """What links one simulated process with the others; ``begin`` before it serves clients."""

    def __init__(
        self,
        network: Network,
        number: int,
        log: StatementLog,
        report: Callable[[BaseException], None],
        ids: Any,
        *,
        numbered: bool,
    ) -> None:
        """``numbered``: the backend takes numbers."""
        self.ids = ids
        self.name = f"tsproxy {network.chance.randrange(1 << 30):08x} {number}"
        self.port = number
        self.is_alive = True
        self.links: list[Link] = []
        self.store_port: Any = None
        self.gathering: Gathering
        self.report = report
        self._network = network
        self._tasks: dict[asyncio.Task[Any], None] = {}
        now_seconds = asyncio.get_running_loop().time
        self.numbers = PeerNumbers()
        self._handler: Any = None
        reactions = Reactions(self._changed, log.begin_generation, log.contest_all)
        chance = network.chance.random
        self.members = Membership(
            self.name,
            self,
            self._connect,
            WINDOW_SECONDS,
            now_seconds,
            reactions,
            chance=chance,
            client_seconds=now_seconds,
        )
        self.ruled_out = 0
        """Statements that were not looked up, because their clients began them behind fences."""
        self._rules_out = self.members.rules_out
        self.members.rules_out = self._counted  # type: ignore[method-assign]
        self.asking = Asking(log, self.members, self.numbers, now_seconds, 30.0, self.spawn, report)
        self.holding = Holding(self.name, self.members.holders, self.numbers, now_seconds, self.spawn)
        self.elsewhere = ReadersElsewhere(self, proxies_count=lambda: True)
        self.elsewhere.ask(self.holding)
        self.readers = ReaderRegister(lambda _: False, elsewhere=self.elsewhere)
        self.held_here = HeldHere(self.readers, self.holding, self.numbers, self.members.ended, now_seconds, self.spawn)
        self.write_numbers = WriteNumbers(SECRET, self.name) if numbered else None
        self._fences = fences_of(network.server, self, self.write_numbers) if numbered else None
        if self.write_numbers is not None:
            self.write_numbers.on_fence = self.members.given_up
        network.nodes[self.name] = self

    def follow(self, handler: Any, reclaiming: Sequence[Reclaiming], port: Any, joining: Joining) -> None:
        """The components that ask, and what they use of the server."""
        self.store_port = port
        self._handler = handler
        for each in reclaiming:
            each.ownership = self.asking
        joining.link(self.members, GatheringLinks(self.members, asyncio.get_running_loop().time, b"simulated"))
        self.gathering = joining.gathering

    def _counted(self, names: Sequence[str], begun_seconds: float) -> bool:
        is_ruled_out = self._rules_out(names, begun_seconds)
        self.ruled_out += is_ruled_out
        return is_ruled_out

    def _changed(self) -> None:
        if self._handler is not None:
            self._handler.ask_others(self.asking if self.members.has_company else None)

    async def begin(self) -> None:
        await self.members.begin()
        self.spawn(self.members.watch())
        self.spawn(self.members.beat(lambda: self.ids.places))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        if not self.is_alive:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.report(error)

    async def kill(self) -> None:
        self.is_alive = False
        for link in list(self.links):
            link.close(by_far=link.far is self)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what the backend shows -----------------------------------------------------------------------------

    async def proxies(self) -> list[Proxy]:
        await asyncio.sleep(self._network.chance.random() * 0.02)
        return [
            Proxy(node.name, "simulated", "", 1, node.port)
            for node in self._network.nodes.values()
            if node is not self and self._is_connected(node)
        ]

    async def read(self, database: str, *, or_are_proxies: bool = False, but: AbstractSet[str] = frozenset()) -> bool:
        """Readers of other processes do nothing at the server all the time; so these are what must be known."""
        others = {each.name for each in await self.proxies()}
        return or_are_proxies and not others <= but

    def _is_connected(self, node: Node) -> bool:
        return node.is_alive or self._network.server.is_connected(node.store_port)

    async def fence(self, name: str) -> bool:
        """As ``proxy.backend.current_op.CurrentOperations``."""
        if self._fences is None:
            return False
        await self._fences.set_up(name)
        return True

    async def meets_fences(self) -> bool:
        return self._fences is not None and await self._fences.meets_others()

    async def executes(self, sessions: Sequence[bytes]) -> bool:
        """Nothing is relayed here."""
        return False

    async def end_idle_transactions(self) -> int:
        """Joins of the simulation are single operations."""
        return 0

    async def activity(self, name: str) -> Activity:
        await asyncio.sleep(self._network.chance.random() * 0.02)
        node = self._network.nodes[name]
        return Activity(self._is_connected(node), self._network.server.operations(node.store_port))

    async def _connect(self, host: str, port: int, has_tls: bool, name: str) -> Any:
        network, node = self._network, self._network.nodes[name]
        await asyncio.sleep(network.delay_seconds())
        while not (network.delivers(self, node) and network.delivers(node, self)):  # noqa: ASYNC110 - as packets are
            await asyncio.sleep(0.1)
        if not node.is_alive:
            raise LinkLost("refused")
        return Link(self._network, self, node)
