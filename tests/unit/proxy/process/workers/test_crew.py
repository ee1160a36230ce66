"""What a crew says before it has any workers; what workers do is in tests/clients/test_workers.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from catalog.errors import CommandError
from proxy.observe.tasks import TaskSet
from proxy.process.workers.crew import Crew, how_ended


async def forward(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return fields


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
