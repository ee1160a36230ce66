"""Connections between proxies: the side that asks, and the side that answers.

Each proxy connects to every other one and asks over its own connection, one question at a time; so each of them also
knows by whom it can be reached. Holds of readers go over the same connection, beside the questions. The asking side
sends pings all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final, Protocol, TypeVar

from catalog.background.absorbing import Order
from catalog.buckets.resting import Given, Rested
from proxy.peers.change import Change, change_bytes, change_in
from proxy.peers.frames import (
    LONGEST_BYTES,
    Answer,
    Frame,
    Kind,
    Question,
    answer_bytes,
    answers_in,
    ask_bytes,
    frame_bytes,
    given_bytes,
    given_in,
    held_bytes,
    held_in,
    hold_bytes,
    hold_in,
    ids_bytes,
    ids_in,
    number_bytes,
    number_in,
    orders_bytes,
    orders_in,
    ping_bytes,
    ping_in,
    questions_in,
    rested_bytes,
    rested_in,
)
from proxy.peers.handshake import (
    ANSWERER,
    ASKER,
    Channel,
    Introduction,
    greeting,
    is_proof,
    nonce,
    proof,
    read_greeting,
)
from proxy.peers.places_told import PlacesTold
from proxy.peers.side import Side

GREETING_SECONDS: Final = 5.0
"""Time in which a connection must prove who it is."""

T = TypeVar("T")


class LinkLost(Exception):
    """The link ended, or the other side is not the proxy that it should be."""


class Link(Side):
    """The side that asks."""

    def __init__(self, own: Introduction, key: bytes, wanted: str) -> None:
        """``wanted``: the name of the other proxy; ``""`` for any."""
        super().__init__()
        self.peer: Introduction | None = None
        self.lost: Callable[[], None] = lambda: None
        """Called once when the link ends."""
        self._hello = greeting(own, nonce())
        self._challenge = b""
        self._key = key
        self._wanted = wanted
        self._waiter: asyncio.Future[bytes] | None = None
        self._holds: dict[int, asyncio.Future[bool]] = {}
        self._given_up: dict[int, asyncio.Future[list[Given]]] = {}
        self._noted: dict[int, asyncio.Future[None]] = {}
        self._numbers = count(1)
        self._own = own

    async def introduce(self) -> None:
        """Prove who both are; raises ``LinkLost``."""
        await self._wait(frame_bytes(Kind.HELLO, self._hello))

    async def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """The answers to the questions, in their order; one call at a time. Raises ``LinkLost``."""
        if not self.is_open or self._channel is None:
            raise LinkLost("not connected")
        said = await self._wait(self._channel.seal(Kind.ASK, ask_bytes(questions)))
        try:
            answers = answers_in(said)
        except ValueError as error:
            raise LinkLost(str(error)) from None
        if len(answers) != len(questions):
            self.close()
            raise LinkLost("wrong number of answers")
        return answers

    async def hold(self, number: int, database: str) -> bool:
        """Ask it to keep readers of the database waiting, or to go on with it; whether it does. One call at a time.

        Raises ``LinkLost``.
        """
        if not self.is_open:
            raise LinkLost("not connected")
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._holds[number] = waiter
        self._say(Kind.HOLD, hold_bytes(number, database))
        try:
            return await waiter
        finally:
            self._holds.pop(number, None)

    def release(self, number: int) -> None:
        """The hold with this number is over."""
        if self.is_open:
            self._say(Kind.RELEASE, number_bytes(number))

    def rested(self, rested: Sequence[Rested]) -> None:
        """Tell it of buckets that rest."""
        if self.is_open:
            self._say(Kind.RESTED, rested_bytes(rested))

    async def give_up(self, ids: Sequence[bytes]) -> list[Given]:
        """Ask it to give these buckets up; those that it has given up. Raises ``LinkLost``."""
        if not self.is_open:
            raise LinkLost("not connected")
        number = next(self._numbers)
        waiter: asyncio.Future[list[Given]] = asyncio.get_running_loop().create_future()
        self._given_up[number] = waiter
        self._say(Kind.GIVE_UP, ids_bytes(number, ids))
        try:
            return await waiter
        finally:
            del self._given_up[number]

    def absorb(self, orders: Sequence[Order]) -> None:
        """Order it to absorb documents."""
        if self.is_open:
            self._say(Kind.ABSORB, orders_bytes(orders))

    def changed(self, change: Change, *, wants_answer: bool) -> asyncio.Future[None] | None:
        """Tell it of a change; the future is done when it knows, or fails with ``LinkLost``.

        Raises ``ValueError`` for a name that is too long to be one. If it does not read what it is told, the link ends.
        """
        number = next(self._numbers) if wants_answer else 0
        self._say(Kind.CHANGED, change_bytes(number, change))
        if not wants_answer:
            if self.is_unread:
                self.close()
            return None
        noted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._noted[number] = noted
        noted.add_done_callback(lambda _: self._noted.pop(number, None))
        return noted

    def ping(self, places: int) -> None:
        """Show that this process can reach the other; ``places``: how many it has used for its buckets."""
        if self.is_open:
            self._say(Kind.PING, ping_bytes(places))

    async def _wait(self, raw: bytes) -> bytes:
        if self._transport is None:
            raise LinkLost("not connected")
        waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiter = waiter
        self._write(raw)
        try:
            return await waiter
        finally:
            self._waiter = None

    def _take(self, frame: Frame) -> None:
        if self._channel is None:
            self._introduced(frame)
        elif frame.kind == Kind.HELD:
            _answered(self._holds, *held_in(frame.said))
            return
        elif frame.kind == Kind.GIVEN_UP:
            _answered(self._given_up, *given_in(frame.said))
            return
        elif frame.kind == Kind.NOTED:
            _answered(self._noted, number_in(frame.said), None)
            return
        elif frame.kind != Kind.ANSWER:
            raise ValueError("not an answer")
        if self._channel is not None:
            if self._waiter is None:
                raise ValueError("nobody asked")
            if not self._waiter.done():
                self._waiter.set_result(frame.said)

    def _introduced(self, frame: Frame) -> None:
        # This side proves first who it is, so that a stranger who connects learns nothing.
        if frame.kind == Kind.CHALLENGE and not self._challenge:
            peer = read_greeting(frame.said)
            if self._wanted not in ("", peer.name) or peer.name == self._own.name:
                raise ValueError("unexpected process")
            self.peer, self._challenge = peer, frame.said
            self._write(frame_bytes(Kind.PROOF, proof(self._key, ASKER, self._hello, self._challenge)))
            return
        if frame.kind != Kind.WELCOME or not self._challenge:
            raise ValueError("not a greeting")
        if not is_proof(frame.said, self._key, ANSWERER, self._hello, self._challenge):
            raise ValueError("different backend account")
        self._channel = Channel(self._key, ASKER, self._hello, self._challenge)
        self._reader.limit_bytes = LONGEST_BYTES

    def _broken(self, reason: str) -> None:
        lost, self.lost = self.lost, lambda: None
        waiters: list[asyncio.Future[Any] | None] = [self._waiter]
        waiters += (*self._holds.values(), *self._given_up.values(), *self._noted.values())
        for waiter in waiters:
            if waiter is not None and not waiter.done():
                waiter.set_exception(LinkLost(reason))
        lost()


def _answered(waiters: Mapping[int, asyncio.Future[T]], number: int, answer: T) -> None:
    # An answer may come after it was no longer waited for.
    waiter = waiters.get(number)
    if waiter is not None and not waiter.done():
        waiter.set_result(answer)


class Answerer(Protocol):
    """The process that is asked."""

    def opened(self, inbound: Inbound) -> None:
        """Somebody has connected."""
        ...

    def closed(self, inbound: Inbound) -> None:
        """The connection has ended, whoever it was; after ``unlinked``."""
        ...

    def linked(self, inbound: Inbound) -> None:
        """Another proxy has connected and proved who it is."""
        ...

    def heard(self, inbound: Inbound) -> None:
        """It has said something."""
        ...

    def unlinked(self, inbound: Inbound) -> None:
        """Its connection has ended."""
        ...

    def answer(self, name: str, questions: Sequence[Question]) -> list[Answer]:
        """What this process knows."""
        ...

    def hold(self, inbound: Inbound, number: int, database: str) -> None:
        """Keep readers of the database waiting, or go on with it; ``Inbound.held`` answers."""
        ...

    def release(self, inbound: Inbound, number: int) -> None:
        """This hold is over."""
        ...

    def rested(self, name: str, rested: Sequence[Rested]) -> None:
        """The process with this name has told of its buckets."""
        ...

    def give_up(self, ids: Sequence[bytes]) -> list[Given]:
        """Give these buckets up; those that were given up."""
        ...

    def absorb(self, orders: Sequence[Order]) -> None:
        """Absorb these documents."""
        ...

    def changed(self, change: Change) -> None:
        """Another process has changed something."""
        ...


class Inbound(Side):
    """The side that answers. ``peer`` is the other proxy once it has proved who it is."""

    def __init__(self, own: Introduction, key: bytes, host: Answerer) -> None:
        super().__init__()
        self.peer: Introduction | None = None
        self.address = ""
        """The host that the connection comes from."""
        self.heard_seconds = 0.0
        """When something came, by the clock of the host."""
        self.places = PlacesTold()
        """Which buckets the other has made."""
        self.on_admitted: Callable[[], None] = lambda: None
        """For the host to call when it counts this connection (``proxy.clients.accepting.MakeProtocol``)."""
        self._key = key
        self._host = host
        self._own = own
        self._hello = b""
        self._challenge = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        super().connection_made(transport)
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        self._timer = asyncio.get_running_loop().call_later(GREETING_SECONDS, self._too_late)
        self._host.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        super().connection_lost(exc)
        self._host.closed(self)

    def _too_late(self) -> None:
        if self._channel is None:
            self.close()

    def _take(self, frame: Frame) -> None:
        if self._channel is None:
            self._greeted(frame)
            return
        assert self.peer is not None
        self._host.heard(self)
        if frame.kind == Kind.ASK:
            self._answer(Kind.ANSWER, answer_bytes(self._host.answer(self.peer.name, questions_in(frame.said))))
        elif frame.kind == Kind.HOLD:
            self._host.hold(self, *hold_in(frame.said))
        elif frame.kind == Kind.RELEASE:
            self._host.release(self, number_in(frame.said))
        elif frame.kind == Kind.PING:
            self.places.pinged(ping_in(frame.said), self.heard_seconds)
        elif frame.kind == Kind.RESTED:
            self._host.rested(self.peer.name, rested_in(frame.said))
        elif frame.kind == Kind.GIVE_UP:
            number, ids = ids_in(frame.said)
            self._answer(Kind.GIVEN_UP, given_bytes(number, self._host.give_up(ids)))
        elif frame.kind == Kind.ABSORB:
            self._host.absorb(orders_in(frame.said))
        elif frame.kind == Kind.CHANGED:
            self._changed(*change_in(frame.said))
        else:
            raise ValueError("not a question")

    def _answer(self, kind: Kind, said: bytes) -> None:
        self._say(kind, said)
        if self.is_unread:
            raise ValueError("it does not read its answers")

    def _changed(self, number: int, change: Change) -> None:
        self._host.changed(change)
        if number:
            self._answer(Kind.NOTED, number_bytes(number))

    def held(self, number: int, *, is_granted: bool) -> None:
        """Answer a request to hold (``Link.hold``)."""
        if self.is_open:
            self._say(Kind.HELD, held_bytes(number, is_granted=is_granted))

    def _greeted(self, frame: Frame) -> None:
        if frame.kind == Kind.HELLO and not self._hello:
            read_greeting(frame.said)
            self._hello = frame.said
            self._challenge = greeting(self._own, nonce())
            self._write(frame_bytes(Kind.CHALLENGE, self._challenge))
            return
        if frame.kind != Kind.PROOF or not self._hello:
            raise ValueError("not a greeting")
        if not is_proof(frame.said, self._key, ASKER, self._hello, self._challenge):
            raise ValueError("different backend account")
        self.peer = read_greeting(self._hello)
        self._write(frame_bytes(Kind.WELCOME, proof(self._key, ANSWERER, self._hello, self._challenge)))
        self._channel = Channel(self._key, ANSWERER, self._hello, self._challenge)
        self._reader.limit_bytes = LONGEST_BYTES
        self._host.linked(self)

    def _broken(self, reason: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._channel is not None:
            self._channel = None
            self._host.unlinked(self)
