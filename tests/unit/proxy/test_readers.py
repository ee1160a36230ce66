"""Joins find a moment without readers, and readers wait for it only shortly."""

from __future__ import annotations

import asyncio

from catalog.namespaces import Namespace
from proxy.readers import ReaderRegister

COLLECTION = Namespace("d", "x")


async def test_a_database_without_readers_is_free_at_once() -> None:
    register = ReaderRegister(lambda _: False)
    async with register.kept_out(COLLECTION) as alone:
        assert alone
        assert register.barrier("d") is not None
        assert register.barrier("other") is None
    assert register.barrier("d") is None


async def test_readers_under_way_are_waited_for() -> None:
    register = ReaderRegister(lambda _: False)
    register.enter("d")
    asyncio.get_running_loop().call_soon(register.leave, "d")
    async with register.kept_out(COLLECTION) as alone:
        assert alone


async def test_a_reader_that_stays_is_not_waited_for_long() -> None:
    register = ReaderRegister(lambda _: False)
    register.enter("d")
    async with register.kept_out(COLLECTION) as alone:
        assert not alone
    register.leave("d")
    async with register.kept_out(COLLECTION) as alone:
        assert alone


async def test_new_readers_wait_for_the_end() -> None:
    register = ReaderRegister(lambda _: False)
    async with register.kept_out(COLLECTION):
        barrier = register.barrier("d")
    assert barrier is not None
    assert barrier.done()


async def test_open_cursors_are_in_the_way_of_their_collection() -> None:
    register = ReaderRegister(lambda namespace: namespace == COLLECTION)
    async with register.kept_out(COLLECTION) as alone:
        assert not alone
    async with register.kept_out(Namespace("d", "y")) as alone:
        assert alone
