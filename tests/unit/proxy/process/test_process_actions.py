"""``status``, ``config`` and ``reload`` in front of a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from catalog.errors import CommandError
from proxy.observe.metrics import Metrics
from proxy.observe.tasks import TaskSet
from proxy.process.assembly import assemble
from proxy.process.control import Control
from proxy.process.process_actions import ProcessActions
from proxy.process.reloading import Reloading
from proxy.settings.config import Address, load_settings
from tests.support.admin_calls import Asking
from tests.support.mongod import MongodProcess


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "t.toml"
    path.touch()
    return path


def write(file: Path, text: str) -> None:
    file.write_text(text)


@asynccontextmanager
async def acting(mongod: MongodProcess, file: Path, trouble: str = "") -> AsyncIterator[ProcessActions]:
    flags = {"backend": mongod.uri, "listen": "127.0.0.1:5"}
    reloading = Reloading(load_settings(flags, {}, file), lambda: load_settings(flags, {}, file))
    metrics, tasks = Metrics(CollectorRegistry()), TaskSet(lambda error: None)
    assembly = await assemble(reloading.settings, metrics, tasks.spawn, lambda error: None)
    control = Control(reloading, lambda: trouble)
    try:
        yield ProcessActions(control, metrics, assembly, Address("h", 7), lambda: {"state": "serving"}, dict)
    finally:
        await assembly.close(10.0)
        await tasks.close()


@pytest.mark.parametrize("trouble", ["", "the backend does not answer"])
async def test_status(mongod: MongodProcess, file: Path, trouble: str) -> None:
    async with acting(mongod, file, trouble) as actions:
        shown = await actions.actions["status"](Asking().call("status"))
    assert (shown["ready"], shown.get("whyNotReady", ""), shown["state"]) == (not trouble, trouble, "serving")
    assert (shown["listen"], shown["backend"]["uri"], shown["backend"]["accessControl"]) == ("h:7", mongod.uri, False)
    assert (shown["uncommitted"], shown["parts"]["waiting"]) == ({"measurements": 0, "bytes": 0}, 0)


async def test_config_and_reload(mongod: MongodProcess, file: Path) -> None:
    async with acting(mongod, file) as actions:
        config, reload = actions.actions["config"], actions.actions["reload"]
        write(file, "max_connections = 7\nreopening = false")
        done = await reload(Asking().call("reload"))
        assert done == {"changed": {"max_connections": 7}, "needRestart": ["reopening"], "ignored": []}
        shown = await config(Asking().call("config"))
        assert (shown["settings"]["max_connections"], shown["settings"]["reopening"]) == (7, True)
        assert shown["sources"] == {
            "backend": "command line",
            "listen": "command line",
            "max_connections": str(file),
        }
        write(file, "max_connections = 0\nbackend = 'mongodb://u:secret@h:x'")
        with pytest.raises(CommandError) as raised:
            await reload(Asking().call("reload"))
        assert raised.value.code == 2
        assert "max_connections = 0" in raised.value.message
        assert raised.value.details["problems"]
        assert (await config(Asking().call("config")))["settings"]["max_connections"] == 7
