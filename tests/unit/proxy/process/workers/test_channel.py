"""Questions and notices between two processes, here both ends in one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from catalog.errors import CommandError
from proxy.observe.tasks import TaskSet
from proxy.process.workers.channel import Channel, ChannelLost


class End:
    def __init__(self) -> None:
        self.notices: list[tuple[str, Mapping[str, Any]]] = []
        self.errors: list[BaseException] = []
        self.losses = 0
        self.channel = Channel(self.answer, self.noticed, TaskSet(self.errors.append), self.lost)

    async def answer(self, question: str, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        if question == "refused":
            raise CommandError(117, "not now", details={"why": 1})
        if question == "broken":
            raise ValueError("a bug")
        if question == "silent":
            await asyncio.Event().wait()
        return {"question": question, **fields}

    def noticed(self, notice: str, fields: Mapping[str, Any]) -> None:
        self.notices.append((notice, fields))

    def lost(self) -> None:
        self.losses += 1


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[End, End]]:
    ends = End(), End()
    for end, sock in zip(ends, socket.socketpair(), strict=True):
        sock.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda made=end.channel: made, sock=sock)
    yield ends
    for end in ends:
        end.channel.close()
        await end.channel.lost()


async def test_questions_are_answered_in_both_directions_also_long_ones() -> None:
    async with pair() as (one, other):
        text = "x" * 3_000_000
        answers = await asyncio.gather(
            one.channel.ask("a", {"text": text}, 20), one.channel.ask("b", {}, 20), other.channel.ask("c", {"n": 1}, 20)
        )
        assert answers == [{"question": "a", "text": text}, {"question": "b"}, {"question": "c", "n": 1}]


async def test_errors_arrive() -> None:
    async with pair() as (one, other):
        with pytest.raises(CommandError) as refused:
            await one.channel.ask("refused", {}, 20)
        assert (refused.value.code, refused.value.message, refused.value.details) == (117, "not now", {"why": 1})
        with pytest.raises(CommandError, match="ValueError: a bug"):
            await one.channel.ask("broken", {}, 20)
        await asyncio.sleep(0)
        assert [type(error) for error in other.errors] == [ValueError]


async def test_end_that_does_not_answer_or_goes() -> None:
    async with pair() as (one, other):
        with pytest.raises(ChannelLost, match="no answer"):
            await one.channel.ask("silent", {}, 0.01)
        asking = asyncio.create_task(one.channel.ask("silent", {}, 20))
        await asyncio.sleep(0)
        other.channel.tell("last", {"n": 1})
        other.channel.close()
        with pytest.raises(ChannelLost, match="has ended"):
            await asking
        await one.channel.lost()
        assert one.notices == [("last", {"n": 1})]
        assert (one.losses, other.losses) == (1, 0)
        with pytest.raises(ChannelLost):
            await one.channel.ask("a", {}, 20)
        one.channel.tell("nobody hears it", {})


async def test_what_is_no_message_ends_the_connection() -> None:
    end, (ours, its) = End(), socket.socketpair()
    ours.setblocking(False)
    await asyncio.get_running_loop().create_unix_connection(lambda: end.channel, sock=ours)
    its.sendall(b"\xff\xff\xff\x7f....")
    async with asyncio.timeout(20):
        await end.channel.lost()
    its.close()
