"""The proxy's own commands on either side of a step-down."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import bson
import pytest

from catalog.bson.codec import decode
from catalog.queries import NO_DOCUMENT
from proxy.backend.service_connection import LostAfterSending
from proxy.backend.service_retry import may_repeat, request

OK = {"ok": 1.0, "n": 1}
REFUSED = {"ok": 0.0, "errmsg": "not primary", "code": 10107}
INTERRUPTED = {"ok": 0.0, "errmsg": "interrupted", "code": 11602}
READ: dict[str, Any] = {"aggregate": "x", "pipeline": [], "cursor": {}, "$db": "d"}
WRITE: dict[str, Any] = {"update": "x", "updates": [], "$db": "d"}
RECORDED = {**WRITE, "stmtId": 0}
LOST = LostAfterSending("gone")


class Pool:
    """A ``ServicePool`` that answers what it was given, in turn."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self._answers = list(answers)
        self.forgotten = 0

    async def request(self, body: bytes, deadline_seconds: float, identifier: str = "", documents: Any = ()) -> bytes:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bson.encode(answer)

    def forget_primary(self) -> None:
        self.forgotten += 1


async def ask(pool: Pool, body: dict[str, Any], *, seconds: float = 10.0) -> dict[str, Any]:
    return dict(decode(await request(cast(Any, pool), body, asyncio.get_running_loop().time() + seconds)))


@pytest.mark.parametrize(
    ("body", "answers"),
    [
        (READ, [REFUSED, INTERRUPTED, LOST]),
        (RECORDED, [INTERRUPTED, LOST, REFUSED]),
        (WRITE, [REFUSED, REFUSED]),
    ],
)
async def test_harmless_commands_go_on_at_the_next_primary(body: dict[str, Any], answers: list[Any]) -> None:
    pool = Pool(*answers, OK)
    assert await ask(pool, body) == OK
    assert pool.forgotten == sum(not isinstance(answer, Exception) for answer in answers)


async def test_write_that_may_be_done_is_not_sent_again() -> None:
    assert await ask(Pool(INTERRUPTED, OK), WRITE) == INTERRUPTED
    with pytest.raises(LostAfterSending):
        await ask(Pool(LOST, OK), WRITE)


async def test_time_runs_out() -> None:
    assert await ask(Pool(REFUSED, OK), READ, seconds=0.0) == REFUSED
    with pytest.raises(LostAfterSending):
        await ask(Pool(LOST, OK), READ, seconds=0.0)


def test_what_does_no_harm_twice() -> None:
    nothing = {"q": NO_DOCUMENT, "limit": 1}
    assert may_repeat(READ)
    assert may_repeat(RECORDED)
    assert may_repeat({"delete": "x", "deletes": [nothing]})
    assert not may_repeat({"delete": "x", "deletes": [nothing, {"q": {}, "limit": 0}]})
    assert not may_repeat(WRITE)
    assert not may_repeat({"getMore": 5, "collection": "x"})
