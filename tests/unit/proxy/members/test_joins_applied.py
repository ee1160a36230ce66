"""When a read from another member may begin after a join."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import bson
import pytest
from bson import Timestamp

from catalog.errors import BackendUnavailable
from proxy.members.joins_applied import KNOWN_BYTES, JoinsApplied
from proxy.request.session import Session
from tests.support.scripted_session import ScriptedUpstream

MEMBER = ("db2", 27017)


def hello(seconds: int) -> dict[str, Any]:
    return {"ok": 1, "lastWrite": {"opTime": {"ts": Timestamp(seconds, 1), "t": 1}}}


class Primary:
    def __init__(self, seconds: int) -> None:
        self.joins: dict[str, int] = {}
        self.reply = hello(seconds)
        self.error: BackendUnavailable | None = None
        self.asked = 0

    def count(self, database: str) -> int:
        return self.joins.get(database, 0)

    async def run(self, database: str, body: dict[str, Any]) -> bytes:
        self.asked += 1
        assert (database, body) == ("admin", {"hello": 1})
        if self.error is not None:
            raise self.error
        return bson.encode(self.reply)


def session(*replies: Any) -> Session:
    upstream = cast(Any, ScriptedUpstream(*replies))
    return replace(Session(1, "127.0.0.1", upstream), member=MEMBER)


async def test_a_member_is_asked_until_it_has_what_the_primary_had() -> None:
    primary = Primary(7)
    applied = JoinsApplied(primary.count, primary.run)
    assert not applied.are_certain(MEMBER, "d"), "there may have been joins before this process began"
    assert await applied.awaited(session(hello(5), hello(6), hello(7)), "d")
    assert applied.are_certain(MEMBER, "d")
    assert not applied.are_certain(("db3", 27017), "d")
    assert not applied.are_certain(MEMBER, "other")
    primary.joins["d"] = 1
    assert not applied.are_certain(MEMBER, "d")


async def test_one_that_is_too_far_behind_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.members.joins_applied.CATCH_UP_SECONDS", 0.05)
    primary = Primary(7)
    applied = JoinsApplied(primary.count, primary.run)
    assert not await applied.awaited(session(*[hello(6)] * 100), "d")
    assert not applied.are_certain(MEMBER, "d")


async def test_without_a_primary_the_member_is_read_from() -> None:
    primary = Primary(7)
    primary.error = BackendUnavailable("no primary")
    applied = JoinsApplied(primary.count, primary.run)
    assert await applied.awaited(session(), "d")
    assert not applied.are_certain(MEMBER, "d")


async def test_what_is_recorded_is_limited() -> None:
    primary = Primary(7)
    applied = JoinsApplied(primary.count, primary.run)
    names = [f"{number}{'d' * 10_000}" for number in range(KNOWN_BYTES // 10_000)]
    for name in names:
        assert await applied.awaited(session(hello(7)), name)
    assert not applied.are_certain(MEMBER, names[0])
    assert applied.are_certain(MEMBER, names[-1])
