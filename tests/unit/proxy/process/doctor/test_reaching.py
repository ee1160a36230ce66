"""Servers say who they are without a login; of all others the reason is known."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from proxy.backend.current_op import PROGRAM
from proxy.process.doctor.found import Member
from proxy.process.doctor.reaching import NAME, further_members, member_at, reached
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port


@asynccontextmanager
async def answering(reply: bytes, *, closes: bool = False) -> AsyncIterator[str]:
    """The address of something that is no mongod."""
    writers: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.read(1)
        writer.write(reply)
        if closes:
            writer.close()

    server = await asyncio.start_server(answer, LOOPBACK, 0)
    try:
        yield f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await asyncio.sleep(0.05)  # what was accepted before gets its writer
        for writer in writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def test_a_member_says_who_it_is(replica_set: MongodProcess) -> None:
    member = await member_at(replica_set.address, None, 5.0)
    assert (member.set_name, member.accepts_writes, member.reason) == ("rs0", True, "")
    assert member.ahead_seconds is not None
    assert abs(member.ahead_seconds) < 5.0
    assert 0.0 < member.round_trip_seconds < 5.0


async def test_nobody_listens() -> None:
    assert (await member_at(f"{LOOPBACK}:{free_port()}", None, 5.0)).reason == "Connection refused"


async def test_a_name_that_is_not_known() -> None:
    member = await member_at("nowhere.example.invalid:27017", None, 2.0)
    assert member.reason


@pytest.mark.parametrize(
    ("reply", "closes"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", True), (b"SSH-2.0-x\r\n", False), (b"\x05\0\0\0\0", False), (b"", True)],
)
async def test_something_that_is_no_mongod(reply: bytes, closes: bool) -> None:
    async with answering(reply, closes=closes) as address:
        member = await member_at(address, None, 0.5)
    assert "does not answer as MongoDB" in member.reason
    assert member.hello is None


async def test_a_server_without_tls(mongod: MongodProcess) -> None:
    member = await member_at(mongod.address, ssl.create_default_context(), 2.0)
    assert member.hello is None
    assert "does it have TLS" in member.reason


async def test_members_that_a_server_names_are_asked_too(replica_set: MongodProcess) -> None:
    seed = ("localhost", replica_set.port)
    assert [each.address for each in await reached([seed], None, 5.0, alone=False)] == [
        f"localhost:{replica_set.port}",
        replica_set.address,
    ]
    assert len(await reached([seed], None, 5.0, alone=True)) == 1


def test_members_are_asked_once() -> None:
    first = Member("a:1", {"hosts": ["a:1", "b:1"], "arbiters": ["c:1"]})
    assert further_members([first, Member("b:1", {"hosts": ["a:1", "b:1"]}), Member("d:1")]) == ["c:1"]


def test_the_doctor_is_not_taken_for_a_proxy() -> None:
    assert re.match(f"^{PROGRAM}( |$)", NAME) is None
