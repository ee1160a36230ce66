"""Waits for replication whose answers the test gives, and a client of one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import bson

from catalog.errors import CommandError
from catalog.ports import Acknowledgement
from proxy.backend.replication_wait import Concern, ReplicationWait


class Waits:
    """A pool whose answers the test gives."""

    def __init__(self) -> None:
        self.pool = self
        self.asked: list[tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]] = []
        self.patience_seconds = 0.2
        self.tasks: list[asyncio.Task[Any]] = []
        self.forgotten = 0
        self.concern: Concern | None = None
        """What the default is."""

    def named(self, shown: Mapping[str, Any]) -> Concern:
        self.concern = self.concern or Concern(self, {"w": shown["w"]})
        return self.concern

    def spawn(self, work: Any) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def request(self, body: bytes, deadline_seconds: float) -> bytes:
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.asked.append((bson.decode(body), answer))
        return bson.encode(await answer)

    def forget_primary(self) -> None:
        self.forgotten += 1

    def close(self) -> None:
        raise AssertionError

    async def answer(self, index: int, **said: Any) -> None:
        while len(self.asked) <= index:  # noqa: ASYNC110
            await asyncio.sleep(0)
        self.asked[index][1].set_result({"n": 0, "opTime": {"t": 1}, "ok": 1.0, **said})


class Client:
    def __init__(self, wait: ReplicationWait) -> None:
        self.heard: list[Acknowledgement | CommandError] = []
        self.gone = False
        wait.when_known(self.heard.append, lambda: self.gone)
