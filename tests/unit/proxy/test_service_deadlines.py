"""Deadlines of requests over service connections: whoever is late fails, the others go on."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from proxy.service import Deadlines, LostAfterSending, ServiceConnection


class _Transport:
    def __init__(self, connection: ServiceConnection) -> None:
        self._connection = connection
        self.aborted = False

    def is_closing(self) -> bool:
        return self.aborted

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True
        self._connection.connection_lost(None)


def _connection() -> ServiceConnection:
    connection = ServiceConnection("backend:27017")
    connection.connection_made(cast("asyncio.BaseTransport", _Transport(connection)))
    return connection


@pytest.mark.asyncio
async def test_a_late_answer_is_not_waited_for_and_ends_the_connection() -> None:
    deadlines, late, patient = Deadlines(), _connection(), _connection()
    now = asyncio.get_running_loop().time()
    waiting = asyncio.ensure_future(patient.request(b""))
    deadlines.watch(patient, now + 60)
    deadlines.watch(late, now + 0.01)
    with pytest.raises(LostAfterSending) as raised:
        await late.request(b"")
    assert raised.value.code == 89
    assert not late.is_open
    assert patient.is_open
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.asyncio
async def test_an_answered_request_is_left_alone() -> None:
    deadlines, answered, late = Deadlines(), _connection(), _connection()
    now = asyncio.get_running_loop().time()
    deadlines.watch(answered, now + 0.005)
    deadlines.watch(late, now + 0.01)
    deadlines.forget(answered)
    with pytest.raises(LostAfterSending):
        await late.request(b"")
    assert answered.is_open


@pytest.mark.asyncio
async def test_the_next_deadline_is_kept_after_one_has_passed() -> None:
    deadlines, first, second = Deadlines(), _connection(), _connection()
    now = asyncio.get_running_loop().time()
    deadlines.watch(first, now + 0.01)
    deadlines.watch(second, now + 0.02)
    for connection in (first, second):
        with pytest.raises(LostAfterSending):
            await connection.request(b"")
