"""Servers under suspicion are asked themselves."""

from __future__ import annotations

import asyncio

from proxy.members.primary_monitor import PrimaryMonitor
from proxy.observe.tasks import TaskSet
from proxy.upstream.dialing import Dialer, parse_upstream_name
from tests.support.mongod import MongodProcess
from tests.support.ports import LOOPBACK, free_port


class Asked:
    def __init__(self) -> None:
        self.left: list[str] = []
        self.dialed = 0
        self.tasks = TaskSet(self._fail)
        self.monitor = PrimaryMonitor(self._dialer_to, self.tasks.spawn, self.left.append)

    def _dialer_to(self, name: str) -> Dialer:
        async def address() -> tuple[str, int]:
            self.dialed += 1
            return parse_upstream_name(name)

        return Dialer(address, None, 5.0)

    @staticmethod
    def _fail(error: BaseException) -> None:
        raise error


async def test_dead_server_is_primary_no_more() -> None:
    asked = Asked()
    name = f"{LOOPBACK}:{free_port()}"
    assert await asked.monitor.suspect(name)
    assert asked.left == [name]


async def test_false_alarm_changes_nothing(replica_set: MongodProcess) -> None:
    asked = Asked()
    assert not await asked.monitor.suspect(replica_set.address)
    assert asked.left == []


async def test_many_who_suspect_ask_once(replica_set: MongodProcess) -> None:
    asked = Asked()
    suspecting = [asked.monitor.suspect(replica_set.address) for _ in range(2)]
    assert await asyncio.gather(*suspecting) == [False, False]
    assert asked.dialed <= 4


async def test_one_who_suspects_and_leaves_keeps_the_answer_from_nobody(replica_set: MongodProcess) -> None:
    asked = Asked()
    leaving, staying = (asked.monitor.suspect(replica_set.address) for _ in range(2))
    leaving.cancel()
    assert not await staying
