"""What a crew says before it has any workers, and when it cannot start one.

What workers do is in tests/clients/test_workers.py.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from catalog.errors import CommandError
from proxy.observe.tasks import TaskSet
from proxy.process.exit_codes import ExitCode, ProcessFailed
from proxy.process.sockets import Sockets
from proxy.process.workers.crew import Crew, how_ended


async def forward(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return fields


async def at_once() -> None:
    """Nothing is in the way of a restart."""


async def test_nobody_is_ready_and_nobody_is_waited_for() -> None:
    crew = Crew(2, lambda number: {}, forward, lambda: None, TaskSet(lambda error: None))
    assert crew.why_not_ready() == "the worker is starting"
    with pytest.raises(CommandError, match="no worker"):
        await crew.for_all("admin", {"name": "pause"}, 1.0)
    crew.stop(others_accept=False)
    await crew.all_ended(1.0)
    crew.close()


def test_how_a_worker_has_ended() -> None:
    assert how_ended(3) == {"exit_code": 3}
    assert how_ended(-9) == {"signal": "SIGKILL"}
    assert how_ended(-1000) == {"signal": 1000}


@pytest.fixture
async def crew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crew]:
    """Two workers that only wait for their end."""
    idle = tmp_path / "idle"
    idle.write_text("#!/bin/sh\nexec sleep 60\n")
    idle.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(idle))
    errors: list[BaseException] = []
    tasks = TaskSet(errors.append)
    made = Crew(2, lambda number: {}, forward, lambda: None, tasks)
    await made.start(Sockets(()))
    made.has_served()
    yield made
    made.stop(others_accept=False)
    await made.all_ended(5.0)
    await tasks.close()
    made.close()
    assert errors == []


async def test_a_worker_is_replaced_as_soon_as_a_process_can_be_started(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may lack files, memory or the interpreter for some time."""
    first = crew.members[1]
    with capture_logs() as logs:
        with monkeypatch.context() as broken:
            broken.setattr(sys, "executable", "/nowhere/python")
            first.kill()
            async with asyncio.timeout(20):
                while "cannot start a process" not in crew.why_not_ready():  # noqa: ASYNC110 -- no event tells it
                    await asyncio.sleep(0.01)
        assert crew.why_not_ready().count("is not replaced yet: cannot start a process: [Errno 2]") == 1
        async with asyncio.timeout(20):
            while crew.members[1] is first:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert crew.members[1].pid != first.pid
    assert crew.why_not_ready() == "the worker is starting"
    assert [each["next_try_in_seconds"] for each in logs if each["event"] == "a worker is not replaced yet"] == [0.5]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_restart_ends_where_no_process_can_be_started(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    before, descriptors = dict(crew.members), open_files()
    with monkeypatch.context() as broken, capture_logs() as logs:
        broken.setattr(sys, "executable", "/nowhere/python")
        assert not await crew.replace_all(at_once)
    assert [each["event"] for each in logs] == ["a new worker is not ready, keeping the old ones"]
    assert "/nowhere/python" in logs[0]["reason"]
    assert crew.members == before
    assert open_files() == descriptors


async def test_a_start_without_processes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    crew = Crew(1, lambda number: {}, forward, lambda: None, TaskSet(lambda error: None))
    with pytest.raises(ProcessFailed, match="worker 0: cannot start a process") as caught:
        await crew.start(Sockets(()))
    assert caught.value.exit_code == ExitCode.TRY_AGAIN
    crew.close()
